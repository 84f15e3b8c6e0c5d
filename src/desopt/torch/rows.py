"""What ``train`` takes as data, as rows that the streams of a run number and draw.

The order of a run's batches is that of its streams, not that of a ``DataLoader``: any machine
repeats it. Of a loader, the data set, ``collate_fn`` and batch size are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
    default_convert,
)

from desopt.contract.types import IndexArray
from desopt.system.terminal import warn
from desopt.torch.parameters import digest_of

#: What has no tensors in it.
_PLAIN = {int, float, bool, str, bytes, type(None)}


class Examples:
    """A data set whose examples are fetched by their numbers."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any] = default_collate) -> None:
        self.dataset, self.collate = dataset, collate

    def __len__(self) -> int:
        return len(self.dataset)

    def take(self, numbers: IndexArray) -> Any:
        """A batch of these examples."""
        if isinstance(self.dataset, TensorDataset) and self.collate is default_collate:
            return tuple(tensor[numbers] for tensor in self.dataset.tensors)
        if hasattr(self.dataset, "__getitems__"):  # as torch's own fetcher does
            return self.collate(self.dataset.__getitems__(numbers.tolist()))
        return self.collate([self.dataset[i] for i in numbers.tolist()])

    def settings(self) -> dict[str, Any]:
        """Their number, and a digest of their bits where they are tensors in memory."""
        digest, whole = None, self.dataset
        parts = whole.datasets if isinstance(whole, ConcatDataset) else [whole]
        if all(isinstance(part, TensorDataset) for part in parts):
            digest = digest_of(enumerate(tensor for part in parts for tensor in part.tensors))
        return {"examples": len(self), "digest": digest}


def as_examples(
    data: Any, batch_size: int | None = None
) -> tuple[Examples | None, Any, int | None]:
    """The ``data`` argument: the examples, what ``minimize`` takes as data, and the batch size.

    No examples where there are no data, or ``draw(rng, b)`` makes them.
    """
    if data is None or callable(data):
        return None, data, batch_size
    if isinstance(data, list):  # the data of each worker
        if not data:
            raise ValueError("data is an empty list; a list must hold one data set per worker")
        parts, sizes = zip(*map(_examples, data), strict=True)
        ends = np.cumsum([len(part) for part in parts])
        numbers = [np.arange(end - len(part), end) for end, part in zip(ends, parts, strict=True)]
        whole = ConcatDataset([part.dataset for part in parts])
        size = _common(sizes) if batch_size is None else batch_size
        return Examples(whole, _common_collate(parts)), numbers, size
    examples, size = _examples(data)
    return examples, np.arange(len(examples)), size if batch_size is None else batch_size


def _common(sizes: Sequence[int | None]) -> int | None:
    """The batch size of all loaders of a list."""
    found = sorted({size for size in sizes if size is not None})
    if len(found) > 1:
        raise ValueError(
            f"data: the loaders have batch sizes {', '.join(map(str, found))}, but a run has one; "
            "give batch_size"
        )
    return found[0] if found else None


def _common_collate(parts: Sequence[Examples]) -> Callable[[list[Any]], Any]:
    if any(part.collate != parts[0].collate for part in parts):
        raise ValueError("data: the loaders have different collate_fn, but a run has one")
    return parts[0].collate


def _examples(data: Any) -> tuple[Examples, int | None]:
    if not isinstance(data, DataLoader):
        return _examples_of(data), None
    examples, batches = _examples_of(data.dataset, data.collate_fn), data.batch_sampler
    if data.collate_fn is default_convert:
        raise ValueError(
            "data is a DataLoader with batch_size=None, which makes no batches of examples; give "
            "it a batch size, or its data set instead"
        )
    order = getattr(batches, "sampler", batches)
    if not isinstance(order, SequentialSampler | RandomSampler | None):
        warn(
            f"{type(order).__name__} of the DataLoader has no effect: batches are drawn from all "
            f"{len(examples)} examples alike; for a part of them give a Subset",
            RuntimeWarning,
            stacklevel=4,
        )
    return examples, getattr(batches, "batch_size", data.batch_size)


def _examples_of(data: Any, collate: Callable[[list[Any]], Any] = default_collate) -> Examples:
    if isinstance(data, Tensor):
        data = (data,)
    if isinstance(data, tuple) and any(isinstance(item, np.ndarray) for item in data):
        raise TypeError("data has NumPy arrays; give tensors instead: torch.from_numpy(X)")
    if isinstance(data, tuple) and all(isinstance(item, Tensor) for item in data):
        shapes = [tuple(item.shape) for item in data]
        if () in shapes or len({shape[0] for shape in shapes}) != 1:
            raise ValueError(
                "data: tensors must have one length, a row for each example, got shapes "
                f"{', '.join(map(str, shapes))}; in a list, each item is the data of a worker"
            )
        data = TensorDataset(*data)
    if isinstance(data, IterableDataset) or not (
        hasattr(data, "__getitem__") and hasattr(data, "__len__")
    ):
        raise TypeError(
            "data must be tensors, a data set with len() and [i], a DataLoader of one, a list of "
            f"these (one per worker), draw(rng, b) or None; got {type(data).__name__}, whose "
            "examples have no numbers to draw them by"
        )
    if len(data) == 0:
        raise ValueError("data has no examples")
    return Examples(data, collate)


def moved(batch: Any, device: Any) -> Any:
    """The batch with all its tensors on a device."""
    if isinstance(batch, Tensor) or hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: moved(item, device) for name, item in batch.items()}
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        make: Any = type(batch)
        items = [moved(item, device) for item in batch]
        return make(*items) if hasattr(batch, "_fields") else make(items)
    return batch


def mutable(batch: Any) -> bool:
    """Whether a loss may take items out of it."""
    return isinstance(batch, MutableMapping | MutableSequence)


def versions(batch: Any) -> list[int]:
    """How often each tensor of the batch has been written into."""
    if isinstance(batch, Tensor):
        return [] if batch.is_inference() else [batch._version]
    if isinstance(batch, Mapping):
        batch = batch.values()
    elif not isinstance(batch, Sequence) or isinstance(batch, str | bytes):
        return []
    if set(map(type, batch)) <= _PLAIN:  # quick: it is asked for every value
        return []
    return [version for item in batch for version in versions(item)]
