"""A few things that numba cannot say, written in LLVM's own terms.

``prefetch`` asks for memory that will be needed soon. ``dot_lanes`` multiplies one sparse row
with four vectors side by side: numba leaves LLVM's vectoriser for straight-line code off, so a
loop over four neighbours would be compiled as four scalar operations; here they are operations
on vectors of four, which LLVM lowers to whatever the machine has. ``unpack_lanes`` and
``move_along_lane`` likewise.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_intrinsic: Any = intrinsic
_FOUR = ir.VectorType(ir.DoubleType(), 4)
_INT = ir.IntType(64)


@_intrinsic
def prefetch(_context, array, index):
    """Start loading the cache line of array[index], to be read soon."""
    signature = types.void(array, types.int64)

    def codegen(context, builder, sig, args):
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [args[1]]), byte)
        function_type = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(
            builder.module, function_type, "llvm.prefetch.p0i8"
        )
        read, keep, of_data = (ir.Constant(word, value) for value in (0, 3, 1))
        builder.call(function, [address, read, keep, of_data])
        return context.get_dummy_value()

    return signature, codegen


def _pointer(context, builder, array_type, value):
    """Where the array's numbers are."""
    return context.make_array(array_type)(context, builder, value).data


def _four_at(builder, base, offset):
    """A pointer to four numbers side by side."""
    return builder.bitcast(builder.gep(base, [offset]), _FOUR.as_pointer())


def _splat(builder, number):
    """A vector of four times the same number."""
    vector = ir.Constant(_FOUR, ir.Undefined)
    for lane in range(4):
        vector = builder.insert_element(vector, number, ir.Constant(ir.IntType(32), lane))
    return vector


def _add_product(builder, into, a, b):
    """into += a b; ``into`` becomes a register."""
    builder.store(builder.fadd(builder.load(into), builder.fmul(a, b)), into)


def _zero_sums(builder, count=2):
    zero = ir.Constant(_FOUR, [0.0] * 4)
    sums = [cgutils.alloca_once(builder, _FOUR) for _ in range(count)]
    for one in sums:
        builder.store(zero, one)
    return sums


@_intrinsic
def unpack_lanes(_context, lanes, count, u, first, v, vu, uu):
    """From four iterations of ``fill_normal_planes`` to u[first + j, :], j < count, adding up
    vu += v[first + j] u[first + j, :] and uu += u[first + j, :]^2 on the way."""
    int64 = types.int64
    signature = types.void(lanes, int64, u, int64, v, vu, uu)

    def codegen(context, builder, sig, args):
        def pointer(position):
            return _pointer(context, builder, sig.args[position], args[position])

        source, target, vector = pointer(0), pointer(2), pointer(4)
        shape = context.make_array(sig.args[0])(context, builder, args[0]).shape
        width = builder.extract_value(shape, 1)
        constant = {k: ir.Constant(_INT, k) for k in (0, 1, 2, 3, 4)}
        totals = [_four_at(builder, pointer(p), constant[0]) for p in (5, 6)]
        sums = _zero_sums(builder)
        with cgutils.for_range_slice(builder, constant[0], args[1], constant[1]) as (j, _):
            plane = builder.mul(builder.and_(j, constant[3]), width)
            at = builder.add(plane, builder.mul(builder.lshr(j, constant[2]), constant[4]))
            four = builder.load(_four_at(builder, source, at), align=8)
            row = builder.add(args[3], j)
            builder.store(four, _four_at(builder, target, builder.mul(row, constant[4])), align=8)
            entry = builder.load(builder.gep(vector, [row]))
            _add_product(builder, sums[0], _splat(builder, entry), four)
            _add_product(builder, sums[1], four, four)
        for total, one in zip(totals, sums, strict=True):
            together = builder.fadd(builder.load(total, align=8), builder.load(one))
            builder.store(together, total, align=8)
        return context.get_dummy_value()

    return signature, codegen


@_intrinsic
def move_along_lane(_context, v, alpha, u, g, cross):
    """v[j] += alpha u[j, g], each product and sum rounded on its own since they decide bits of
    x, and in the same pass cross[:] = sum_j u[j, g] u[j, :]."""
    signature = types.void(v, types.float64, u, types.int64, cross)

    def codegen(context, builder, sig, args):
        def pointer(position):
            return _pointer(context, builder, sig.args[position], args[position])

        vector, lanes, target = pointer(0), pointer(2), pointer(4)
        shape = context.make_array(sig.args[0])(context, builder, args[0]).shape
        n = builder.extract_value(shape, 0)
        zero, one, four = (ir.Constant(_INT, k) for k in (0, 1, 4))
        sums = _zero_sums(builder)

        def step(into, j):
            row = builder.mul(j, four)
            entry = builder.load(builder.gep(lanes, [builder.add(row, args[3])]))
            place = builder.gep(vector, [j])
            moved = builder.fadd(builder.load(place), builder.fmul(args[1], entry))
            builder.store(moved, place)
            lane = builder.load(_four_at(builder, lanes, row), align=8)
            _add_product(builder, into, _splat(builder, entry), lane)

        even = builder.and_(n, ir.Constant(_INT, -2))
        with cgutils.for_range_slice(builder, zero, even, ir.Constant(_INT, 2)) as (j, _):
            step(sums[0], j)
            step(sums[1], builder.add(j, one))
        with builder.if_then(builder.trunc(n, ir.IntType(1))):
            step(sums[0], builder.sub(n, one))
        total = builder.fadd(builder.load(sums[0]), builder.load(sums[1]))
        builder.store(total, _four_at(builder, target, zero), align=8)
        return context.get_dummy_value()

    return signature, codegen


@_intrinsic
def dot_lanes(_context, data, indices, begin, end, shift, u, out, i):
    """out[i, :] = sum of data[p] u[indices[p - shift], :] over begin <= p < end.

    ``u`` and ``out`` are C-ordered with four columns. Indices are not checked.
    """
    int64 = types.int64
    signature = types.void(data, indices, int64, int64, int64, u, out, int64)

    def codegen(context, builder, sig, args):
        def pointer(position):
            return _pointer(context, builder, sig.args[position], args[position])

        values, columns, lanes, target = pointer(0), pointer(1), pointer(5), pointer(6)
        begin, end, shift, i = args[2], args[3], args[4], args[7]
        one, four = (ir.Constant(_INT, k) for k in (1, 4))

        def accumulate(into, p):
            column = builder.load(builder.gep(columns, [builder.sub(p, shift)]))
            if column.type.width < 64:
                column = builder.zext(column, _INT)
            entry = builder.load(builder.gep(values, [p]))
            lane = builder.load(_four_at(builder, lanes, builder.mul(column, four)), align=8)
            _add_product(builder, into, _splat(builder, entry), lane)

        sums = _zero_sums(builder, 4)  # so that one addition need not wait for the other
        count = builder.sub(end, begin)
        fours = builder.add(begin, builder.and_(count, ir.Constant(_INT, -4)))
        with cgutils.for_range_slice(builder, begin, fours, four) as (p, _):
            for k, into in enumerate(sums):
                accumulate(into, builder.add(p, ir.Constant(_INT, k)))
        with builder.if_then(builder.trunc(builder.lshr(count, one), ir.IntType(1))):
            accumulate(sums[0], fours)
            accumulate(sums[1], builder.add(fours, one))
        with builder.if_then(builder.trunc(count, ir.IntType(1))):
            accumulate(sums[2], builder.sub(end, one))
        halves = [builder.fadd(builder.load(sums[k]), builder.load(sums[k + 1])) for k in (0, 2)]
        total = builder.fadd(*halves)
        builder.store(total, _four_at(builder, target, builder.mul(i, four)), align=8)
        return context.get_dummy_value()

    return signature, codegen
