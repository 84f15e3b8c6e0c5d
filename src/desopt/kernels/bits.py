"""A float64 seen as its 64 bits and back, inside compiled code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_intrinsic: Any = intrinsic


@_intrinsic
def as_float(_context, _bits):
    """The float64 with these 64 bits."""

    def codegen(_ctx, builder, _sig, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), codegen


@_intrinsic
def as_bits(_context, _value):
    """The 64 bits of a float64."""

    def codegen(_ctx, builder, _sig, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.uint64(types.float64), codegen
