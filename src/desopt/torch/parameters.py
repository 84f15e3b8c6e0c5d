"""Parameters of a module as one vector of changes x: what the module computes with is base + P x.

==============  =========================================================  ====================
what is chosen  P                                                          beside the module
==============  =========================================================  ====================
parameters      the identity                                               their base values
Coordinates(d)  d of the chosen numbers, drawn by a seed                   d base values
Subspace(d)     every chosen number follows one of d, with a sign and a    their base values
                factor sqrt(d / N), both drawn by a seed, never stored
==============  =========================================================  ====================

A parameter is always written as base + change, the sum in float64 and then rounded once to the
parameter's type: nothing drifts, x = 0 is the base bit for bit, and steps below the resolution of
bfloat16 are not lost in x. Sums and rounding are done on the CPU, so that a GPU gets the same bits.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from desopt.contract import checks, streams
from desopt.contract.streams import SERVER, Purpose, Stream
from desopt.contract.types import FloatArray, IndexArray

#: What ``parameters`` may be: None for those that require a gradient, patterns of names, a test.
Choice: TypeAlias = str | Iterable[str] | Callable[[str, Any], bool] | None

#: Numbers that are written at once: all the memory that a dense step needs.
CHUNK = 2**16


@dataclass(frozen=True)
class Coordinates:
    """d of the chosen numbers, drawn by a seed without replacement: the others stay."""

    d: int
    seed: int = 0


@dataclass(frozen=True)
class Subspace:
    """A random subspace of d dimensions that moves all chosen numbers.

    Number i changes by s_i sqrt(d / N) x[h_i] with s_i = -1 or 1 and h_i uniform on 0..d-1. The d
    directions are orthogonal, and their lengths are 1 on average: a change of the parameters is as
    long as that of x.
    """

    d: int
    seed: int = 0


def chosen(model: Any, choice: Choice) -> list[tuple[str, Any]]:
    """The parameters of the module that are searched, by name, in the module's order."""
    named = list(model.named_parameters())
    if choice is None:
        found = [(name, p) for name, p in named if p.requires_grad]
        wanted = "requires_grad"
    elif callable(choice):
        found = [(name, p) for name, p in named if choice(name, p)]
        wanted = getattr(choice, "__name__", "the filter")
    else:
        patterns = [choice] if isinstance(choice, str) else list(choice)
        found = [
            (name, p) for name, p in named if any(fnmatch.fnmatchcase(name, q) for q in patterns)
        ]
        wanted = ", ".join(patterns)
    if not found:
        names = ", ".join(name for name, _ in named[:8])
        raise ValueError(
            f"parameters: none of the module's {len(named)} has {wanted}; they are named {names}"
            + (", ..." if len(named) > 8 else "")
        )
    return found


class Parameters:
    """The chosen parameters of one module, and how x is written into them.

    ``like``: those of another copy of the module; the base values are taken from there.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Any]],
        subspace: Coordinates | Subspace | None = None,
        like: Parameters | None = None,
    ) -> None:
        self.names = [name for name, _ in named]
        self._flat = [_flat(name, p) for name, p in named]
        self._ends = np.cumsum([flat.numel() for flat in self._flat])
        self._first = self._ends - [flat.numel() for flat in self._flat]
        self.count = int(self._ends[-1])
        self.subspace = subspace
        self.n = self.count
        if subspace is not None:
            name = type(subspace).__name__
            self.n = checks.whole(f"{name}: d", subspace.d, 1, self.count)
            checks.whole(f"{name}: seed", subspace.seed, 0, 2**64 - 1)
        #: Of Coordinates: the places, and the base values there. Else a base for each parameter.
        self._where: IndexArray | None = None
        self._base: Any
        if like is not None:
            self._where, self._base = like._where, like._base
        elif isinstance(subspace, Coordinates):
            self._where = _drawn(subspace, self.count)
            self._base = self._read(self._where)
        else:
            self._base = [flat.to("cpu", copy=True) for flat in self._flat]

    @property
    def device(self) -> Any:
        return self._flat[0].device

    @property
    def sparse(self) -> bool:
        """Whether a number of x is one number of the module: few of them can be written alone."""
        return not isinstance(self.subspace, Subspace)

    def write(self, x: FloatArray) -> None:
        """base + P x into the module."""
        if isinstance(self.subspace, Coordinates):
            self.write_at(np.arange(self.n), x)
        else:
            self.write_chunks(self._changes(x))

    def write_chunks(self, changes: Iterator[FloatArray]) -> None:
        """base + change, for changes that come as they are needed (see ``pieces``)."""
        for (tensor, begin, end, _), change in zip(self.pieces(), changes, strict=True):
            base = self._base[tensor][begin:end].double().numpy()
            self._set(tensor, slice(begin, end), base + change)

    def write_at(self, index: IndexArray, change: FloatArray) -> None:
        """base + change at some numbers of x, given once each: O(l), whatever n is."""
        where = index if self._where is None else self._where[index]
        tensors = np.searchsorted(self._ends, where, side="right")
        for tensor in np.unique(tensors).tolist():
            mine = tensors == tensor
            place = torch.from_numpy(where[mine] - self._first[tensor])
            if self._where is None:
                base = self._base[tensor][place].double().numpy()
            else:
                base = self._base[index[mine]]
            self._set(tensor, place, base + change[mine])

    def pieces(self) -> Iterator[tuple[int, int, int, int]]:
        """(tensor, begin, end, first) of all numbers: at most CHUNK, none across a multiple of it.

        ``first`` is the piece's place among all chosen numbers.
        """
        bounds = zip(self._first.tolist(), self._ends.tolist(), strict=True)
        for tensor, (first, stop) in enumerate(bounds):
            at = first
            while at < stop:
                end = min(stop, (at // CHUNK + 1) * CHUNK)
                yield tensor, at - first, end - first, at
                at = end

    def settings(self) -> dict[str, Any]:
        """As plain JSON values, for the journal."""
        space = None
        if self.subspace is not None:
            space = {"name": type(self.subspace).__name__, **asdict(self.subspace)}
        return {"parameters": self.names, "subspace": space}

    def _changes(self, x: FloatArray) -> Iterator[FloatArray]:
        """P x, piece by piece."""
        if not isinstance(self.subspace, Subspace):
            for _, begin, end, first in self.pieces():
                yield x[first : first + end - begin]
            return
        signed = np.concatenate((-x, x)) * math.sqrt(self.n / self.count)
        drawn = -1
        for _, begin, end, first in self.pieces():
            if drawn != first // CHUNK:
                drawn = first // CHUNK
                stream = Stream(self.subspace.seed, 0, SERVER, drawn, Purpose.SUBSPACE)
                # uniform on 0..2d-1: x[j] with either sign
                place = streams.integers(stream, min(CHUNK, self.count - drawn * CHUNK), 2 * self.n)
            at = first - drawn * CHUNK
            yield signed[place[at : at + end - begin]]

    def _read(self, where: IndexArray) -> FloatArray:
        """Some of the chosen numbers, as float64."""
        out = np.empty(where.size)
        for flat, first, end in zip(self._flat, self._first, self._ends, strict=True):
            mine = (where >= first) & (where < end)
            out[mine] = flat[torch.from_numpy(where[mine] - first)].double().cpu().numpy()
        return out

    def _set(self, tensor: int, place: Any, values: FloatArray) -> None:
        """Round on the CPU, then copy to wherever the module is."""
        flat = self._flat[tensor]
        flat[place] = torch.from_numpy(values).to(flat.dtype).to(flat.device)


def _flat(name: str, parameter: Any) -> Any:
    """The parameter's own memory as a vector."""
    if not parameter.is_floating_point():
        raise TypeError(f"parameters: {name} has type {parameter.dtype}, which has no small steps")
    if not parameter.is_contiguous():
        raise ValueError(f"parameters: {name} is not contiguous; assign {name}.contiguous() first")
    return parameter.detach().view(-1)


def _drawn(subspace: Coordinates, count: int) -> IndexArray:
    """d distinct numbers below ``count``, in rising order: the first d distinct ones drawn."""
    stream = Stream(subspace.seed, 0, SERVER, 0, Purpose.SUBSPACE)
    if 2 * subspace.d > count:  # most of them: those with the smallest words, ties by their number
        order = np.argsort(streams.words(stream, count), kind="stable")
        return np.sort(order[: subspace.d])
    draws = 2 * subspace.d
    while True:
        drawn, first = np.unique(streams.integers(stream, draws, count), return_index=True)
        if drawn.size >= subspace.d:
            return np.sort(drawn[np.argsort(first, kind="stable")[: subspace.d]])
        draws *= 2


def digest_of(named: Iterable[tuple[Any, Any]]) -> str:
    """A digest of names, types, shapes and bits of tensors, the same on any device."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in named:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().contiguous().view(-1)
        for begin in range(0, flat.numel(), 16 * CHUNK):
            piece = flat[begin : begin + 16 * CHUNK].cpu()
            digest.update(piece.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def base_digest(model: Any) -> str:
    """The digest of a module: all parameters and buffers of its ``state_dict``."""
    state = model.state_dict()
    return digest_of((name, state[name]) for name in state if isinstance(state[name], torch.Tensor))
