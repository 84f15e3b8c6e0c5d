"""How threads in compiled code speak to each other: single numbers that all of them see."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

_intrinsic: Any = intrinsic


def _place(context, builder, signature, args):
    """Where array[index] is; the first two arguments."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


@_intrinsic
def add_and_get_old(_context, array, index, value):
    """array[index] += value in one step; returns what was there before."""
    signature = types.int64(array, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        return builder.atomic_rmw("add", _place(context, builder, sig, args), args[2], "seq_cst")

    return signature, codegen


@_intrinsic
def read(_context, array, index):
    """array[index]; whatever its writer wrote before it is seen, too."""
    signature = types.int64(array, types.int64)

    def codegen(context, builder, sig, args):
        return builder.load_atomic(_place(context, builder, sig, args), "acquire", 8)

    return signature, codegen


@_intrinsic
def write(_context, array, index, value):
    """array[index] = value, after all that was written before."""
    signature = types.void(array, types.int64, types.int64)

    def codegen(context, builder, sig, args):
        builder.store_atomic(args[2], _place(context, builder, sig, args), "release", 8)
        return context.get_dummy_value()

    return signature, codegen


@_intrinsic
def floats_at(_context, address):
    """An address as a pointer to float64, for ``numba.carray``."""
    pointer = types.CPointer(types.float64)

    def codegen(context, builder, _sig, args):
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(types.int64), codegen
