"""One sparse row times four vectors side by side, as SIMD code.

numba leaves LLVM's vectoriser for straight-line code off, so a loop over four neighbours is
compiled as four scalar operations. This loop is written in LLVM's terms instead, as operations
on vectors of four; LLVM lowers them to whatever the machine has.
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
_FUSE = ("contract",)


@_intrinsic
def dot_lanes(_context, data, indices, begin, end, shift, u, out, i):
    """out[i, :] = sum of data[p] u[indices[p - shift], :] over begin <= p < end.

    ``u`` and ``out`` are C-ordered with four columns. Indices are not checked.
    """
    int64 = types.int64
    signature = types.void(data, indices, int64, int64, int64, u, out, int64)

    def codegen(context, builder, sig, args):
        def pointer(position):
            value, array_type = args[position], sig.args[position]
            return context.make_array(array_type)(context, builder, value).data

        values, columns, lanes, target = pointer(0), pointer(1), pointer(5), pointer(6)
        begin, end, shift, i = args[2], args[3], args[4], args[7]

        def four_at(base, row):
            first = builder.gep(base, [builder.mul(row, ir.Constant(_INT, 4))])
            return builder.bitcast(first, _FOUR.as_pointer())

        def accumulate(into, p):
            column = builder.load(builder.gep(columns, [builder.sub(p, shift)]))
            if column.type.width < 64:
                column = builder.zext(column, _INT)
            entry = builder.load(builder.gep(values, [p]))
            splat = ir.Constant(_FOUR, ir.Undefined)
            for lane in range(4):
                splat = builder.insert_element(splat, entry, ir.Constant(ir.IntType(32), lane))
            product = builder.fmul(
                splat, builder.load(four_at(lanes, column), align=8), flags=_FUSE
            )
            builder.store(builder.fadd(builder.load(into), product, flags=_FUSE), into)

        # Two sums, so that one addition need not wait for the other.
        zero = ir.Constant(_FOUR, [0.0] * 4)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(2)]
        for one in sums:
            builder.store(zero, one)
        one = ir.Constant(_INT, 1)
        with cgutils.for_range_slice(
            builder, begin, builder.sub(end, one), ir.Constant(_INT, 2)
        ) as (p, _):
            accumulate(sums[0], p)
            accumulate(sums[1], builder.add(p, one))
        odd = builder.icmp_unsigned(
            "!=", builder.and_(builder.sub(end, begin), one), ir.Constant(_INT, 0)
        )
        with builder.if_then(odd):
            accumulate(sums[0], builder.sub(end, one))
        total = builder.fadd(builder.load(sums[0]), builder.load(sums[1]))
        builder.store(total, four_at(target, i), align=8)
        return context.get_dummy_value()

    return signature, codegen
