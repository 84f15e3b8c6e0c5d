"""Vectors of a fixed width inside compiled code, for sums that have the same bits everywhere.

A sum is only reproducible if its order is. Left to itself, a compiler either adds one number at
a time, or, given the freedom to reorder, adds in as many parts as the machine at hand has room
for. Here the order is written down: element j of an array belongs to lane j % ``WIDTH``, lanes
are added one by one, and a fixed tree adds the lanes up. A value of type ``Lanes`` is
``WIDTH`` numbers side by side; LLVM splits it into whatever registers the CPU has. Each lane
of each operation is rounded as IEEE 754 says, so no CPU can tell the difference.

``fma(a, b, c)`` is a b + c with one rounding: the only place where a product and a sum are
fused.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, errors
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

#: Numbers in a vector. Two registers of AVX-512, four of AVX2, eight of SSE or NEON: enough
#: independent work to hide the latency of an operation on each of them.
WIDTH = 16

#: Lanes of a scalar product: rows of dense data are often short.
ROW_WIDTH = 8

_intrinsic: Any = intrinsic
_DOUBLE, _INT, _BIT, _WORD = ir.DoubleType(), ir.IntType(64), ir.IntType(1), ir.IntType(32)
_VECTOR = ir.VectorType(_DOUBLE, WIDTH)
_ROW = ir.VectorType(_DOUBLE, ROW_WIDTH)
_BITS = ir.VectorType(_INT, WIDTH)
_MASK = ir.VectorType(_BIT, WIDTH)


class _Lanes(types.Type):
    """``WIDTH`` numbers of float64."""


class _LaneBits(types.Type):
    """``WIDTH`` words of 64 bits."""


class _LaneMask(types.Type):
    """``WIDTH`` truth values."""


lanes_type, bits_type, mask_type = _Lanes("Lanes"), _LaneBits("LaneBits"), _LaneMask("LaneMask")


def _stored_as(vector: ir.VectorType) -> Any:
    class Model(models.PrimitiveModel):
        def __init__(self, manager, fe_type):
            super().__init__(manager, fe_type, vector)

    return Model


for _type, _vector in ((_Lanes, _VECTOR), (_LaneBits, _BITS), (_LaneMask, _MASK)):
    register_model(_type)(_stored_as(_vector))


# --- operators ---------------------------------------------------------------------------------


def _splat(builder, number):
    """A vector of this number in every lane."""
    vector = ir.VectorType(number.type, WIDTH)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(_WORD, 0))
    everywhere = ir.Constant(ir.VectorType(_WORD, WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), everywhere)


def _vectors(builder, args):
    """Scalars among the operands count for every lane."""
    return [a if isinstance(a.type, ir.VectorType) else _splat(builder, a) for a in args]


def _offer(operation, of, scalar, result, emit):
    """Let an operator work on two vectors, or on a vector and a scalar."""
    kinds = ((of, of), (of, scalar), (scalar, of))

    class Template(ConcreteTemplate):
        cases = [signature(result, *kind) for kind in kinds]  # noqa: RUF012 - numba's own style

    infer_global(operation)(Template)

    def lower(_context, builder, _sig, args):
        return emit(builder, *_vectors(builder, args))

    for kind in kinds:
        lower_builtin(operation, *kind)(lower)


def _comparison(sign):
    return lambda builder, a, b: builder.fcmp_ordered(sign, a, b)  # false for NaN


def _instruction(name):
    return lambda builder, a, b: getattr(builder, name)(a, b)


for _operator, _name in (
    (operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):  # fmt: skip
    _offer(_operator, lanes_type, types.float64, lanes_type, _instruction(_name))
for _operator, _name in ((operator.sub, "sub"), (operator.lshift, "shl")):
    _offer(_operator, bits_type, types.uint64, bits_type, _instruction(_name))
for _operator, _sign in ((operator.lt, "<"), (operator.gt, ">")):
    _offer(_operator, lanes_type, types.float64, mask_type, _comparison(_sign))


@_intrinsic
def fma(_context, a, b, c):
    """a b + c, rounded once."""

    def codegen(_ctx, builder, _sig, args):
        function_type = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        name = f"llvm.fma.v{WIDTH}f64"
        function = cgutils.get_or_insert_function(builder.module, function_type, name)
        return builder.call(function, _vectors(builder, args))

    return lanes_type(a, b, c), codegen


@_intrinsic
def where(_context, mask, a, b):
    """a in the lanes where the mask is true, b in the others."""

    def codegen(_ctx, builder, _sig, args):
        return builder.select(args[0], *_vectors(builder, args[1:]))

    return lanes_type(mask, a, b), codegen


@_intrinsic
def magnitude(_context, _a):
    """|a|."""

    def codegen(_ctx, builder, _sig, args):
        without_sign = _splat(builder, ir.Constant(_INT, 0x7FFFFFFFFFFFFFFF))
        return builder.bitcast(builder.and_(builder.bitcast(args[0], _BITS), without_sign), _VECTOR)

    return lanes_type(lanes_type), codegen


@_intrinsic
def lane_bits(_context, _a):
    """The 64 bits of each number."""
    return bits_type(lanes_type), lambda _ctx, builder, _sig, args: builder.bitcast(args[0], _BITS)


@_intrinsic
def lanes_of(_context, _bits):
    """The numbers with these bits."""
    return lanes_type(bits_type), lambda _ctx, builder, _sig, args: builder.bitcast(
        args[0], _VECTOR
    )


@_intrinsic
def zeros(_context):
    """0 in every lane."""
    return lanes_type(), lambda _ctx, _builder, _sig, _args: ir.Constant(_VECTOR, [0.0] * WIDTH)


# --- memory ------------------------------------------------------------------------------------


def check_floats(array):
    """Refuse, while compiling, an array that is not float64 side by side."""
    if not (
        isinstance(array, types.Array) and array.layout == "C" and array.dtype == types.float64
    ):
        raise errors.TypingError(f"lanes need a C-ordered array of float64, got {array}")


def place(context, builder, array_type, array, index):
    """Where an element of the array is, counted from its first one."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _at(builder, pointer, width):
    """The same place, as one of ``width`` numbers."""
    return builder.bitcast(pointer, ir.VectorType(_DOUBLE, width).as_pointer())


def _copy(builder, source, target, count):
    with cgutils.for_range(builder, count) as loop:
        number = builder.load(builder.gep(source, [loop.index]))
        builder.store(number, builder.gep(target, [loop.index]))


@_intrinsic
def load(_context, array, index):
    """array[index : index + WIDTH], counted from the array's first element."""
    check_floats(array)

    def codegen(context, builder, sig, args):
        source = place(context, builder, sig.args[0], args[0], args[1])
        return builder.load(_at(builder, source, WIDTH), align=8)

    return lanes_type(array, types.int64), codegen


@_intrinsic
def load_some(_context, array, index, left, fill):
    """array[index : index + WIDTH]; where only ``left`` numbers are left, ``fill`` for the rest."""
    check_floats(array)

    def codegen(context, builder, sig, args):
        source = place(context, builder, sig.args[0], args[0], args[1])
        found = cgutils.alloca_once(builder, _VECTOR)
        whole = builder.icmp_signed(">=", args[2], ir.Constant(_INT, WIDTH))
        with builder.if_else(whole, likely=True) as (then, otherwise):
            with then:
                builder.store(builder.load(_at(builder, source, WIDTH), align=8), found)
            with otherwise:
                builder.store(_splat(builder, args[3]), found)
                _copy(builder, source, builder.bitcast(found, _DOUBLE.as_pointer()), args[2])
        return builder.load(found)

    return lanes_type(array, types.int64, types.int64, types.float64), codegen


@_intrinsic
def store(_context, array, index, _lanes):
    """array[index : index + WIDTH] = lanes."""
    check_floats(array)

    def codegen(context, builder, sig, args):
        target = place(context, builder, sig.args[0], args[0], args[1])
        builder.store(args[2], _at(builder, target, WIDTH), align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, lanes_type), codegen


@_intrinsic
def store_some(_context, array, index, left, _lanes):
    """array[index : index + WIDTH] = lanes, or the first ``left`` of them where that is less."""
    check_floats(array)

    def codegen(context, builder, sig, args):
        target = place(context, builder, sig.args[0], args[0], args[1])
        whole = builder.icmp_signed(">=", args[2], ir.Constant(_INT, WIDTH))
        kept = cgutils.alloca_once(builder, _VECTOR)
        with builder.if_else(whole, likely=True) as (then, otherwise):
            with then:
                builder.store(args[3], _at(builder, target, WIDTH), align=8)
            with otherwise:
                builder.store(args[3], kept)
                _copy(builder, builder.bitcast(kept, _DOUBLE.as_pointer()), target, args[2])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, lanes_type), codegen


# --- sums --------------------------------------------------------------------------------------


def _halves(builder, vector, width):
    """Its first and its second half, added."""
    parts = (
        builder.shuffle_vector(
            vector, vector, ir.Constant(ir.VectorType(_WORD, width), list(lanes))
        )
        for lanes in (range(width), range(width, 2 * width))
    )
    return builder.fadd(*parts)


def _first(builder, vector):
    return builder.extract_element(vector, ir.Constant(_WORD, 0))


@_intrinsic
def total(_context, _lanes):
    """The sum of all lanes: the halves are added until one number is left."""

    def codegen(_ctx, builder, _sig, args):
        vector, width = args[0], WIDTH
        while width > 1:
            width //= 2
            vector = _halves(builder, vector, width)
        return _first(builder, vector)

    return types.float64(lanes_type), codegen


def _products(builder, row, vectors, at, width):
    """``width`` numbers of the row times those of each vector."""
    number = builder.load(_at(builder, builder.gep(row, [at]), width), align=8)
    for vector in vectors:
        other = builder.load(_at(builder, builder.gep(vector, [at]), width), align=8)
        yield builder.fmul(number, other)


def _dots(builder, row, vectors, count):
    """The products of a row with vectors of this length, read once for all of them.

    What is left after whole vectors of lanes joins the tree that adds the lanes up: four
    numbers when the sum is four lanes wide, then two, one.
    """
    sums = [cgutils.alloca_once(builder, _ROW) for _ in vectors]
    for one in sums:
        builder.store(ir.Constant(_ROW, [0.0] * ROW_WIDTH), one)

    def add(at, width):
        for one, more in zip(sums, _products(builder, row, vectors, at, width), strict=True):
            builder.store(builder.fadd(builder.load(one), more), one)

    at = builder.and_(count, ir.Constant(_INT, -ROW_WIDTH))
    zero, width = ir.Constant(_INT, 0), ROW_WIDTH
    with cgutils.for_range_slice(builder, zero, at, ir.Constant(_INT, width)) as (j, _):
        add(j, width)
    while width > 1:
        width //= 2
        halved = [_halves(builder, builder.load(one), width) for one in sums]
        sums = [cgutils.alloca_once_value(builder, half) for half in halved]
        left = builder.and_(count, ir.Constant(_INT, width))
        with builder.if_then(builder.icmp_unsigned("!=", left, zero)):
            add(at, width)
        at = builder.add(at, left)
    return [_first(builder, builder.load(one)) for one in sums]


@_intrinsic
def dot(_context, a, first, b, count):
    """sum_j a[first + j] b[j] over j < count; ``a`` counted from its first element."""
    check_floats(a)
    check_floats(b)

    def codegen(context, builder, sig, args):
        row = place(context, builder, sig.args[0], args[0], args[1])
        vector = place(context, builder, sig.args[2], args[2], ir.Constant(_INT, 0))
        (found,) = _dots(builder, row, [vector], args[3])
        return found

    return types.float64(a, types.int64, b, types.int64), codegen


@_intrinsic
def dot_both(_context, a, first, b, c, count):
    """``dot`` of a with b and with c."""
    for array in (a, b, c):
        check_floats(array)
    int64 = types.int64
    pair = types.UniTuple(types.float64, 2)

    def codegen(context, builder, sig, args):
        row = place(context, builder, sig.args[0], args[0], args[1])
        vectors = [
            place(context, builder, sig.args[k], args[k], ir.Constant(_INT, 0)) for k in (2, 3)
        ]
        return context.make_tuple(builder, pair, _dots(builder, row, vectors, args[4]))

    return pair(a, int64, b, c, int64), codegen
