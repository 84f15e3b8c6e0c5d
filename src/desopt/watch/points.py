"""x after any round of a run, replayed from its journal in steps of bounded work.

States on the way are kept, evenly spread over the rounds, so that going back and forth does not
replay the run from its beginning each time.
"""

from __future__ import annotations

import math
import sys
import time
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from desopt.contract.codec import digest_of
from desopt.contract.participation import participants
from desopt.contract.types import Algorithm, FloatArray
from desopt.engines.trials import Key
from desopt.run import header as headers
from desopt.run import journal as journals
from desopt.run.journal_file import refusing
from desopt.run.replay import algorithm_of, of_user
from desopt.watch.runs import Index, Run

#: Variables, answers of a round, and coordinates that the steps of a round may change.
MAX_N, MAX_ANSWERS, MAX_CHANGES = 10_000_000, 100_000, 2_000_000_000
#: Bytes of the states that are kept for one run.
MEMORY = 2**26
#: Coordinates that a page is told: all up to so many, else the first ones and the most changed.
SHOWN = 64
FIRST, CHANGED = 16, 32
#: Open trials that are counted, of so many workers.
MAX_OPEN_WORKERS, MAX_OPEN = 256, 1000


class TooLong(ValueError):
    """More work than a page may cause."""


class Points:
    """The states of one run. Not for several threads at a time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._index: Index | None = None
        self._states: dict[int, Any] = {}

    def at(self, round: int, deadline: float) -> Any:
        """The state after this round, or the last one that the deadline allows."""
        index = self._run.index
        if not 0 <= round <= len(index.rounds) or not index.snapshots:
            raise ValueError(f"{self._run.id} has {len(index.rounds)} rounds, not {round}")
        with self._run.tree.open(self._run.path) as file, refusing(self._run.id, "what it holds"):
            if index is not self._index:
                self._begin(index)
            state = self._nearest(index, file, round)
            while state.round < round and time.monotonic() < deadline:
                place = index.rounds[state.round]
                _, answers = journals.unpack_round(index.payload(file, *place), index.workers)
                self._check_work(len(answers))
                state = self._algorithm.merge(state, answers)
                self._keep(state)
            return state

    def _begin(self, index: Index) -> None:
        """The algorithm of another journal, once its numbers are plausible."""
        self._index, self._states = None, {}
        headers.check_versions(self._run.path, index.header)
        config = index.header["config"]
        if config["n"] > MAX_N:
            raise TooLong(f"x has {config['n']:,} variables; the page shows up to {MAX_N:,}")
        self._algorithm: Algorithm = algorithm_of(self._run.path, index.header)
        self._like = self._algorithm.init(np.zeros(config["n"]))
        self._each = max(1, index.snapshots[0][2])  # bytes of a state
        self._index = index

    def _check_work(self, answers: int) -> None:
        """Refuse a round whose replay would keep the page waiting."""
        config = self._run.index.header["config"]
        method: Mapping[str, Any] = config["method"]
        steps = max(int(method.get(name) or 1) for name in ("iterations", "population"))
        sampler = method.get("sampler")
        width = sampler.get("l") if isinstance(sampler, dict) else None
        if answers > MAX_ANSWERS or answers * steps * int(width or config["n"]) > MAX_CHANGES:
            raise TooLong("a round of this run takes too long to replay here; use desopt replay")

    def _nearest(self, index: Index, file: BinaryIO, round: int) -> Any:
        """The last known state that is not after the round: kept, or in the file."""
        kept = max((t for t in self._states if t <= round), default=-1)
        place = bisect_right(index.snapshots, round, key=lambda snapshot: snapshot[0]) - 1
        at, offset, length = index.snapshots[place]
        if kept >= at:
            return self._states[kept]
        state = journals.Snapshot(at, index.payload(file, offset, length)).state(self._like)
        if state.round != at:
            raise ValueError(f"the state of round {state.round} follows round {at}")
        self._keep(state)
        return state

    def _keep(self, state: Any) -> None:
        """Keep a state; when there are too many, every other one goes."""
        self._states[state.round] = state
        if len(self._states) > max(8, MEMORY // self._each):
            ordered = sorted(self._states)
            for t in ordered[1:-1:2]:
                del self._states[t]

    def shown(self, round: int, deadline: float) -> dict[str, Any]:
        """What a page shows of x after the round; ``round`` in it may be smaller, for now."""
        state = self.at(round, deadline)
        if state.round < round:
            return {"round": state.round, "of": round}
        config = self._run.index.header["config"]
        with refusing(self._run.id, "what it holds"):
            x = of_user(state.x, config)
            start = of_user(self.at(0, math.inf).x, config)
            if not (np.isfinite(x).all() and np.isfinite(start).all()):
                raise ValueError(f"x after round {round}, or its start, is not finite")
        return {"round": round, "of": round, "digest": digest_of(x), **described(x, start)}

    def open_trials(self, deadline: float) -> list[str] | None:
        """Ids of values of the coming round that nobody has told; None if that is unknown."""
        run, index = self._run, self._run.index
        if not index.snapshots:
            return None
        state = self.at(len(index.rounds), deadline)
        config = index.header["config"]
        with refusing(run.id, "what it holds"):  # a method of the user's may have no seed
            seed = int(config["seed"] if "seed" in config else config["method"]["seed"])
        workers = participants(seed, state.round, index.workers, config["participation"])
        if state.round < len(index.rounds) or len(workers) > MAX_OPEN_WORKERS:
            return None
        found: list[str] = []
        with refusing(run.id, "what it holds"):
            task = self._algorithm.plan(state)
            for worker in workers:
                search = self._algorithm.search(task, worker)  # type: ignore[attr-defined]
                found += _open(search, worker, run.known)
                if time.monotonic() > deadline or len(found) > MAX_OPEN:
                    return None
        return found


def _open(search: Any, worker: int, known: Mapping[Key, tuple[float, bool]]) -> list[str]:
    """The needed points of a search without a value, after all values that are known."""
    while search.needed:
        asked = len(search.ask(max(2, search.needed)))
        keys = [
            Key(search.round, worker, search.index + i, search.basis)
            for i in range(min(search.needed, asked))
        ]
        told: list[float] = []
        for key in keys:
            if key not in known:
                break
            value, failed = known[key]
            told.append(math.nan if failed else value)
        if not told:
            return [str(key) for key in keys if key not in known]
        search.tell(told)
    return []


def described(x: FloatArray, start: FloatArray) -> dict[str, Any]:
    """Norms, and all coordinates of a short x; of a long one the first and the most changed."""
    with np.errstate(over="ignore"):
        change = np.minimum(np.abs(x - start), sys.float_info.max)
    if x.size <= SHOWN:
        shown = np.arange(x.size)
    else:
        most = np.argpartition(change, x.size - CHANGED)[-CHANGED:]
        shown = np.union1d(np.arange(FIRST), most)
    return {
        "n": x.size,
        "norm": _norm(x),
        "moved": _norm(change),
        "nonzero": int(np.count_nonzero(x)),
        "coordinates": [[int(i), float(start[i]), float(x[i])] for i in shown],
    }


def _norm(x: FloatArray) -> float:
    """The length of x as JSON can have it: squares do not overflow, and it is finite."""
    most = float(np.max(np.abs(x)))
    return min(most * float(np.linalg.norm(x / most)), sys.float_info.max) if most else 0.0
