"""Single values on the actors of a Ray cluster.

A trial goes to an actor that hosts its worker's data, or to any if there are none. The first one
of a worker is preceded by a call that loads the data and calls ``setup``: the time for a value
counts from after that.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from desopt.contract.errors import EngineError
from desopt.data import NoData, distinct
from desopt.engines.base import Job
from desopt.engines.processes import messages
from desopt.engines.ray.actors import Actors
from desopt.engines.trials import Outcome, Trial, is_over_data

#: Seconds for an actor to start, import the package and fetch its data.
START_LIMIT = 300.0


@dataclass(eq=False)  # one is itself only: points are arrays
class _Flight:
    """A trial, and the call on its way to a value: ``load``, ``prepare`` or ``value``."""

    trial: Trial
    message: bytes
    failures: int = 0
    step: str = ""
    call: Any = None
    deadline: float | None = None


@dataclass
class Limits:
    """Seconds for the call that a value needs, and for the value itself; and the attempts."""

    timeout: float | None
    evaluation_timeout: float | None
    attempts: int


class Values:
    """Trials in, outcomes out, on up to ``slots`` actors, which are started when needed.

    ``replace(index, reason)`` replaces an actor; without a reason, nothing is done again.
    """

    def __init__(
        self, job: Job, actors: Actors, slots: int, limits: Limits,
        replace: Callable[[int, str], None],
    ) -> None:  # fmt: skip
        self._job, self._actors, self._slots = job, actors, slots
        self._limits, self._replace = limits, replace
        self._groups = len(actors)
        self._anywhere = all(isinstance(shard, NoData) for shard in distinct(job.shards))
        self._waiting: deque[_Flight] = deque()
        self._busy: dict[int, _Flight] = {}
        self._prepared: set[tuple[int, int]] = set()  # actors and workers
        self._errors: list[bytes] = []
        self.repeated = 0

    def submit(self, trial: Trial) -> None:
        self._waiting.append(_Flight(trial, messages.pack_trial(trial)))

    def completed(self) -> list[tuple[Trial, Outcome]]:
        done: list[tuple[Trial, Outcome]] = []
        while not done and not self._errors and (self._waiting or self._busy):
            self._hand_out()
            for index in self._finished():
                done += self._take(index)
            now = time.monotonic()
            for index, flight in list(self._busy.items()):
                if flight.deadline is not None and now > flight.deadline:
                    done += self._late(index)
        if self._errors and not done:  # values that came with an error are not lost
            raise messages.unpack_error(self._errors.pop())
        return done

    def _hand_out(self) -> None:
        """Give the trials that are waiting to free actors, each to one with its data."""
        for flight in list(self._waiting):
            if (index := self._free(flight.trial.key.worker)) is not None:
                self._waiting.remove(flight)
                self._busy[index] = flight
                self._next_step(index)

    def _free(self, worker: int) -> int | None:
        group = worker % self._groups
        for index, hosted in enumerate(self._actors.hosted):
            if index not in self._busy and (self._anywhere or hosted == group):
                return index
        return self._actors.add(group) if len(self._actors) < self._slots else None

    def _next_step(self, index: int) -> None:
        """Send the next call on the way to the value."""
        flight, actor, limit = self._busy[index], self._actors[index], self._limits.timeout
        if index in self._actors.loading:
            flight.step, flight.call, limit = "load", self._actors.loading[index], START_LIMIT
        elif (index, flight.trial.key.worker) not in self._prepared:
            flight.step, flight.call = "prepare", actor.prepare.remote(flight.message)
        else:
            flight.step, flight.call = "value", actor.value.remote(flight.message)
            if not is_over_data(self._job, flight.trial):
                limit = self._limits.evaluation_timeout or limit
        flight.deadline = None if limit is None else time.monotonic() + limit

    def _finished(self) -> list[int]:
        """The actors whose call has ended, or none once a deadline has passed."""
        calls = {flight.call: index for index, flight in self._busy.items()}
        deadlines = [f.deadline for f in self._busy.values() if f.deadline is not None]
        limit = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        first, _ = ray.wait([*calls], timeout=limit)
        ready, _ = ray.wait([*calls], num_returns=len(calls), timeout=0) if first else ([], [])
        return [calls[call] for call in ready]

    def _take(self, index: int) -> list[tuple[Trial, Outcome]]:
        """The result of an actor's call: the outcome, if it was the last one."""
        flight = self._busy[index]
        try:
            reply: bytes = ray.get(flight.call)
        except RayError as error:
            return self._lost(index, f"died ({type(error).__name__})")
        if reply[:1] == messages.OUTCOME:
            del self._busy[index]
            return [(flight.trial, messages.unpack_outcome(reply))]
        if reply[:1] == messages.ERROR:
            del self._busy[index]
            self._errors.append(reply)
            return []
        if flight.step == "load":
            self._actors.loading.pop(index, None)
        else:
            self._prepared.add((index, flight.trial.key.worker))
        self._next_step(index)
        return []

    def _late(self, index: int) -> list[tuple[Trial, Outcome]]:
        """The value of an actor that gave no reply in time."""
        flight, limit = self._busy[index], self._limits.evaluation_timeout
        if limit is None or flight.step != "value" or is_over_data(self._job, flight.trial):
            return self._lost(index, "gave no answer in time")
        self._dismiss(index, "")
        return [(flight.trial, Outcome(math.nan, failed=f"no value within {limit:g} s"))]

    def _lost(self, index: int, reason: str) -> list[tuple[Trial, Outcome]]:
        """Replace an actor; its value is computed again, or after the last attempt failed."""
        flight, attempts = self._busy[index], self._limits.attempts
        flight.failures += 1
        again = flight.failures < attempts
        self._dismiss(index, reason if again else "")
        if again:
            self._waiting.appendleft(flight)
            self.repeated += 1
            return []
        if flight.step == "load":
            raise EngineError(
                f"an actor {reason} before it was ready, {attempts} in a row; Ray's logs on its "
                "node say why"
            )
        tries = f" in {attempts} attempts" if attempts > 1 else ""
        return [(flight.trial, Outcome(math.nan, failed=f"its actor {reason}{tries}"))]

    def _dismiss(self, index: int, reason: str) -> None:
        del self._busy[index]
        self._prepared = {pair for pair in self._prepared if pair[0] != index}
        self._replace(index, reason)
