"""Parameters of a module as one vector of changes x: what the module computes with is base + P x.

==============  =========================================================  ====================
what is chosen  P                                                          beside the module
==============  =========================================================  ====================
parameters      the identity                                               see below
Coordinates(d)  d of the chosen numbers, drawn by a seed                   d base values
Subspace(d)     every chosen number follows one of d, with a sign and a    their base values
                factor sqrt(d / N), both drawn by a seed, never stored
==============  =========================================================  ====================

The base values beside the module are those of the numbers that differ from the base, where few do
(``Scattered`` x); the first x that is an array needs a copy of all.

A parameter is always written as base + change, the sum in float64 and then rounded once to the
parameter's type: nothing drifts, x = 0 is the base bit for bit, and steps below the resolution of
bfloat16 are not lost in x. Sums and rounding are done on the CPU, so that a GPU gets the same bits.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch

from desopt.contract import checks, streams
from desopt.contract.scattered import Scattered
from desopt.contract.streams import SERVER, Purpose, Stream
from desopt.contract.types import BoolArray, FloatArray, IndexArray

#: What ``parameters`` may be: None for those that require a gradient, patterns of names, a test.
Choice: TypeAlias = str | Iterable[str] | Callable[[str, Any], bool] | None

#: Numbers that are written at once: all the memory that a dense step needs.
CHUNK = 2**16


@dataclass(frozen=True)
class Coordinates:
    """d of the chosen numbers, drawn by a seed without replacement: the others stay.

    >>> import desopt.torch
    >>> desopt.torch.Coordinates(100, seed=7)
    Coordinates(d=100, seed=7)
    """

    d: int
    seed: int = 0


@dataclass(frozen=True)
class Subspace:
    """A random subspace of d dimensions that moves all chosen numbers.

    Number i changes by s_i sqrt(d / N) x[h_i] with s_i = -1 or 1 and h_i uniform on 0..d-1. The d
    directions are orthogonal, and their lengths are 1 on average: a change of the parameters is as
    long as that of x.

    >>> import desopt.torch
    >>> desopt.torch.Subspace(20, seed=7)
    Subspace(d=20, seed=7)
    """

    d: int
    seed: int = 0


def chosen(model: Any, choice: Choice) -> list[tuple[str, Any]]:
    """The parameters of the module that are searched, by name, in the module's order."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {model!r:.80}")
    named = list(model.named_parameters())
    if choice is None:
        found = [(name, p) for name, p in named if p.requires_grad]
        wanted = "requires_grad"
    elif callable(choice):
        found = [(name, p) for name, p in named if choice(name, p)]
        wanted = getattr(choice, "__name__", "the filter")
    else:
        patterns = _patterns(choice)
        match = fnmatch.fnmatchcase
        found = [(name, p) for name, p in named if any(match(name, q) for q in patterns)]
        # a misspelt one among others must not narrow the search in silence
        without = [q for q in patterns if not any(match(name, q) for name, _ in found)]
        found, wanted = [] if without else found, ", ".join(without)
    if not found:
        names = ", ".join(name for name, _ in named[:8])
        raise ValueError(
            f"parameters: none of the module's {len(named)} has {wanted}; they are named {names}"
            + (", ..." if len(named) > 8 else "")
        )
    return found


def _patterns(choice: Any) -> list[str]:
    patterns = [choice] if isinstance(choice, str) else choice
    patterns = list(patterns) if isinstance(patterns, Iterable) else []
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError(
            "parameters must be None, patterns of names such as 'head.*', or a test "
            f"f(name, parameter), got {choice!r:.80}"
        )
    return patterns


class Parameters:
    """The chosen parameters of one module, and how x is written into them.

    ``like``: those of another copy of the module; all base values are taken from there.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Any]],
        subspace: Coordinates | Subspace | None = None,
        like: Parameters | None = None,
    ) -> None:
        self.names = [name for name, _ in named]
        self._flat = [_flat(name, p) for name, p in named]
        _refuse_shared(self.names, self._flat)
        self._ends = np.cumsum([flat.numel() for flat in self._flat])
        self._first = self._ends - [flat.numel() for flat in self._flat]
        self.count = int(self._ends[-1])
        self.subspace = subspace
        self.n = self.count
        if self.count == 0:
            raise ValueError(f"parameters: {', '.join(self.names)} have no numbers to search")
        if subspace is not None:
            if not isinstance(subspace, Coordinates | Subspace):
                raise TypeError(
                    f"subspace must be None, Coordinates(d) or Subspace(d), got {subspace!r:.80}"
                )
            name = type(subspace).__name__
            self.n = checks.whole(f"{name}: d", subspace.d, 1, self.count)
            checks.seed(f"{name}: seed", subspace.seed)
        #: Of Coordinates: the places, and the base values there.
        self._where: IndexArray | None = None
        self._at_places: FloatArray | None = None
        #: Else a base for each parameter, made when it is needed; until then the base values of
        #: what has been written.
        self._base: list[Any] | None = None
        self._written = Scattered(self.count)
        self._making = threading.Lock()
        if like is not None:
            self._where, self._at_places, self._base = like._where, like._at_places, like.base()
        elif isinstance(subspace, Coordinates):
            self._where = _drawn(subspace, self.count)
            self._at_places = self._read(self._where, self._flat)

    @property
    def device(self) -> Any:
        return self._flat[0].device

    @property
    def sparse(self) -> bool:
        """Whether a number of x is one number of the module: few of them can be written alone."""
        return not isinstance(self.subspace, Subspace)

    def write(self, x: FloatArray | Scattered) -> None:
        """base + P x into the module."""
        if self._where is not None:
            self.write_at(np.arange(self.n), np.asarray(x))
        elif isinstance(x, Scattered) and self.sparse and self._base is None:
            self.restore()
            self.write_at(x.columns, x.values)
        else:
            self.write_chunks(self._changes(np.asarray(x)))

    def restore(self) -> None:
        """The base."""
        if self._where is not None or self._base is not None:
            self.write(np.zeros(self.n))
            return
        self._put(self._written.columns, self._written.values)
        self._written = Scattered(self.count)

    def write_chunks(self, changes: Iterator[FloatArray]) -> None:
        """base + change, for changes that come as they are needed (see ``pieces``)."""
        kept = self.base()
        for (tensor, begin, end, _), change in zip(self.pieces(), changes, strict=True):
            base = kept[tensor][begin:end].double().numpy()
            self._set(tensor, slice(begin, end), base + change)

    def write_at(self, index: IndexArray, change: FloatArray) -> None:
        """base + change at some numbers of x, given once each: O(l), whatever n is."""
        if self._where is not None:
            assert self._at_places is not None
            self._put(self._where[index], self._at_places[index] + change)
        else:
            self._put(index, self._base_at(index) + change)

    def base(self) -> list[Any]:
        """The base values of all parameters; from now on they are kept."""
        with self._making:
            if self._base is None and self._where is None:
                self.restore()
                self._base = [flat.to("cpu", copy=True) for flat in self._flat]
        return self._base  # type: ignore[return-value]

    def _base_at(self, index: IndexArray) -> FloatArray:
        """Some base values as float64; where only these are kept, those not written before."""
        if self._base is not None:
            return self._read(index, self._base)
        known = np.isin(index, self._written.columns)
        new = index[~known]
        self._written.put(new, self._read(new, self._flat))
        return self._written[index]

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

    def _by_tensor(self, where: IndexArray) -> Iterator[tuple[int, BoolArray, Any]]:
        """(tensor, which of the chosen numbers are in it, their places there)."""
        tensors = np.searchsorted(self._ends, where, side="right")
        for tensor in np.unique(tensors).tolist():
            mine = tensors == tensor
            yield tensor, mine, torch.from_numpy(where[mine] - self._first[tensor])

    def _read(self, where: IndexArray, values: Sequence[Any]) -> FloatArray:
        """Some of the chosen numbers, as float64."""
        out = np.empty(where.size)
        for tensor, mine, place in self._by_tensor(where):
            out[mine] = values[tensor][place].double().cpu().numpy()
        return out

    def _put(self, where: IndexArray, values: FloatArray) -> None:
        """Write some of the chosen numbers."""
        for tensor, mine, place in self._by_tensor(where):
            self._set(tensor, place, values[mine])

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


def _refuse_shared(names: Sequence[str], flats: Sequence[Any]) -> None:
    """Two parameters in the same memory would overwrite each other's steps."""
    spans = sorted(
        (str(flat.device), flat.data_ptr(), flat.nbytes, name)
        for name, flat in zip(names, flats, strict=True)
        if flat.numel() and not flat.is_meta
    )
    for (device, begin, size, name), (other, next_begin, _, next_name) in pairwise(spans):
        if device == other and next_begin < begin + size:
            raise ValueError(
                f"parameters: {name} and {next_name} share memory, so that a step of one is a step "
                "of the other; choose one of them"
            )


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
