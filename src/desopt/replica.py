"""A peer's side of the wire as plain logic; ``desopt.server`` is the other side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from desopt import wire
from desopt._version import __version__
from desopt.algorithms import restore
from desopt.algorithms.base import form_of
from desopt.engines.base import Job
from desopt.journal import digest_of
from desopt.rng import SERVER
from desopt.samplers import Sampler
from desopt.types import Algorithm, Answer, FloatArray, Task
from desopt.wire import Reason, Total, WireError

VERSION = ".".join(__version__.split(".")[:2])

#: Settings that must be there as whole numbers, and the most they may be.
_WHOLE = {"workers": SERVER, "batch_size": 2**63 - 1, "seed": 2**64 - 1}


class Replica:
    """A peer's copy of the state, kept by the same merges as the server's.

    ``settings`` are those of the run's description. With ``x0`` the replica stands at round 0;
    without, it needs the state first. Whatever ``follow`` refuses leaves the state as it was.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        n: int,
        workers: int,
        run: bytes,
        *,
        x0: FloatArray | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.algorithm, self.workers, self.run = algorithm, workers, run
        self.settings = dict(settings or {})
        self.state: Any = None
        self.task: Task | None = None
        self._form = form_of(algorithm)
        self._like = algorithm.init(np.zeros(n))
        self._digest = wire.NOWHERE
        if x0 is not None:
            self.state = algorithm.init(x0)
            self.task = algorithm.plan(self.state)
            self._digest = wire.digest_of(self.task)

    @classmethod
    def joining(
        cls, description: bytes, *, sampler: Sampler | None = None, largest: int = 2**24
    ) -> Replica:
        """The replica for a run that is described; ``largest`` bounds n."""
        run, settings = wire.unpack_description(description)
        if settings.get("desopt") != VERSION:
            text = f"desopt {settings.get('desopt')!r:.20} runs there, {VERSION} here"
            raise WireError(Reason.VERSION, text)
        for name, most in _WHOLE.items() | {("n", largest)}:
            value = settings.get(name)
            if type(value) is not int or not 0 <= value <= most:
                text = f"{name} is {value!r:.20}, not a whole number up to {most}"
                raise WireError(Reason.DESCRIPTION, text)
        try:
            algorithm = restore(settings["method"], sampler)
            form_of(algorithm)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError(Reason.DESCRIPTION, f"no method: {error}") from None
        n, workers, zeros = settings["n"], settings["workers"], np.zeros(settings["n"])
        x0 = zeros if settings.get("x0") == digest_of(zeros) else None
        return cls(algorithm, n, workers, run, x0=x0, settings=settings)

    @property
    def limit(self) -> int:
        """The longest message that ``follow`` looks at."""
        return wire.largest_update(wire.state_bytes(self._like))

    def follow(self, data: bytes) -> Task:
        """Go where the message leads; the task of that round."""
        message = wire.unseal(data, (wire.UPDATE, wire.SNAPSHOT), self.limit, self.run)
        if self.state is not None and message.round < self.state.round:
            text = f"round {message.round}; this replica is at {self.state.round}"
            raise WireError(Reason.LATE, text)
        if message.kind == wire.SNAPSHOT:
            state = wire.unpack_snapshot(message, self._like)
        else:
            state = self._replayed(message)
        task = self.algorithm.plan(state)
        if wire.digest_of(task) != message.digest:
            self._digest = wire.NOWHERE  # what led here is not to be trusted: ask for the state
            raise WireError(Reason.DIVERGED, f"another x than the server's in round {state.round}")
        self.state, self.task, self._digest = state, task, message.digest
        return task

    def answer(self, task: Task, answer: Answer) -> bytes:
        """A worker's answer to a task."""
        return wire.pack_answer(self.run, task.round, self._digest_of(task), answer)

    def total(self, task: Task, worker: int, total: float, rows: int) -> bytes:
        """The sum of F over a worker's data at the task's x."""
        sum_of_worker = Total(worker, total, rows)
        return wire.pack_total(self.run, task.round, self._digest_of(task), sum_of_worker)

    def ask(self) -> bytes:
        """Where this replica stands, for a server that is to bring it further."""
        if self._digest == wire.NOWHERE:
            return wire.seal(wire.ASK, self.run, 0, wire.NOWHERE)
        return wire.seal(wire.ASK, self.run, self.state.round, self._digest)

    def save(self) -> bytes:
        """The state as a message that ``follow`` takes: for a process that will be restarted."""
        return wire.pack_snapshot(self.run, self._digest, self.state)

    def _replayed(self, message: wire.Message) -> Any:
        """The state after the rounds of an update; those done already are skipped."""
        first, rounds = wire.unpack_update(message, self._form.size)
        state = self.state
        if state is None or first > state.round:
            at = "nowhere" if state is None else f"at {state.round}"
            raise WireError(Reason.GAP, f"answers from round {first} on; this replica is {at}")
        for block in rounds[state.round - first :]:
            answers = wire.unpack_round(block, self.workers)
            try:
                state = self.algorithm.merge(state, answers)
            except ValueError as error:
                raise WireError(Reason.PAYLOAD, str(error)) from None
        return state

    def _digest_of(self, task: Task) -> bytes:
        return self._digest if task is self.task else wire.digest_of(task)


def describe(job: Job, x0: FloatArray) -> dict[str, Any]:
    """The settings that a run's description holds."""
    return {
        "desopt": VERSION,
        "method": job.algorithm.settings(),
        "objective": job.objective.settings(),
        "workers": job.workers,
        "batch_size": job.batch_size,
        "seed": job.seed,
        "participation": job.participation,
        "n": job.n,
        "x0": digest_of(x0),
    }
