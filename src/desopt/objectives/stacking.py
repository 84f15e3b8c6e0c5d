"""Batches of several points as one, and arrays of any library as NumPy's.

A batch is an array, or a tuple or dict of arrays. The stacked batch has the same form; each array
has one more axis, the first one, over the points.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

AnyArray: TypeAlias = NDArray[Any]
Convert: TypeAlias = Callable[[AnyArray], Any]


def as_numpy(array: Any) -> AnyArray:
    """An array of NumPy, torch, JAX, CuPy or any other library, on whatever device."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "detach"):  # torch: the values without their graph
        array = array.detach().cpu()
        return np.asarray(array.float() if "bfloat16" in str(array.dtype) else array)
    if hasattr(array, "__dlpack__") and hasattr(array, "get"):  # CuPy converts on request only
        array = array.get()
    if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
        return np.from_dlpack(array)
    return np.asarray(array)


def signature(batch: Any) -> Hashable:
    """Form, shapes and types of a batch: those with equal ones can be stacked."""
    found: list[Hashable] = []
    form = _mapped(lambda leaves: found.append(_shape_and_type(leaves[0])), [batch])
    return repr(form), tuple(found)


def size_of(batch: Any) -> int:
    """The bytes of a batch's arrays."""
    sizes: list[int] = []
    _mapped(lambda leaves: sizes.append(as_numpy(leaves[0]).nbytes), [batch])
    return sum(sizes)


def stacked(batches: Sequence[Any], convert: Convert | None) -> Any:
    """The batches of several points as one batch."""

    def leaf(leaves: list[Any]) -> Any:
        array = np.stack([as_numpy(leaf) for leaf in leaves])
        return _read_only(array) if convert is None else convert(array)

    return _mapped(leaf, batches)


def repeated(batch: Any, points: int, convert: Convert | None) -> Any:
    """One batch for all points, without a copy where the library can do without."""

    def leaf(leaves: list[Any]) -> Any:
        array = as_numpy(leaves[0])[None]
        shape = (points, *array.shape[1:])
        if convert is None:
            return _read_only(np.broadcast_to(array, shape))
        with warnings.catch_warnings():  # that of torch.from_numpy about the user's own data
            warnings.filterwarnings("ignore", "The given NumPy array is not writ")
            return _broadcast(array, shape, convert)

    return _mapped(leaf, [batch])


def _broadcast(array: AnyArray, shape: tuple[int, ...], convert: Convert) -> Any:
    """Converted once and then repeated: a copy for each point could fill a device."""
    converted = convert(array)
    if hasattr(converted, "expand"):  # torch
        return converted.expand(shape)
    if hasattr(converted, "__array_namespace__"):
        return converted.__array_namespace__().broadcast_to(converted, shape)
    return convert(np.broadcast_to(array, shape))


def _mapped(leaf: Callable[[list[Any]], Any], batches: Sequence[Any]) -> Any:
    """The form of the batches with ``leaf(arrays)`` in the place of each array."""
    first = batches[0]
    if isinstance(first, dict):
        return {name: _mapped(leaf, [batch[name] for batch in batches]) for name in first}
    if isinstance(first, tuple):
        items = [_mapped(leaf, column) for column in zip(*batches, strict=True)]
        return first._make(items) if hasattr(first, "_make") else tuple(items)
    return leaf(list(batches))


def _shape_and_type(leaf: Any) -> Hashable:
    try:
        array = as_numpy(leaf)
    except ValueError:  # lists of different lengths
        array = np.empty((), object)
    if array.dtype == object:
        raise TypeError(
            "with vectorized the batches of several points are stacked: a batch must be an array, "
            f"or a tuple or dict of arrays; got {type(leaf).__name__} in it"
        )
    return array.shape, array.dtype.str


def _read_only(array: AnyArray) -> AnyArray:
    array.flags.writeable = False
    return array
