"""A peer's side of the wire as plain logic; the other side is ``protocol.server``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from desopt._version import SAME_BITS_SINCE
from desopt.contract.codec import digest_of, in_float32, state_bytes
from desopt.contract.payload import layout_of
from desopt.contract.types import Algorithm, Answer, FloatArray, Task
from desopt.methods import restore
from desopt.methods.samplers import Sampler
from desopt.protocol import wire
from desopt.protocol.wire import Reason, Total, WireError

#: That of all peers, and of a journal that is continued or replayed.
VERSION = SAME_BITS_SINCE


@dataclass(frozen=True)
class Limits:
    """The most that a server may ask of a peer, checked before any memory is allocated.

    ``draws`` bounds iterations * mixture, a round's random coordinates, some 64 bytes each.
    A minibatch takes batch_size times a row of the data. ``memory`` bounds n * workers, the numbers
    in the estimates of des-c, and n * population where cma-es learns correlations.
    """

    n: int = 2**24
    workers: int = 2**20
    iterations: int = 2**20
    batch_size: int = 2**17
    draws: int = 2**22
    population: int = 2**16
    memory: int = 2**27


#: Settings of methods that are counts, with the limit of each.
_COUNTS = {
    "iterations": "iterations", "perturbations": "iterations",
    "population": "population", "candidates": "population",
}  # fmt: skip


class Replica:
    """A peer's copy of the state, kept by the same merges as the server's.

    ``settings`` are those of the run's description. With ``x0`` the replica is at round 0; without
    it, it needs the state first. A message that ``follow`` refuses leaves the state unchanged.
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
        self._layout = layout_of(algorithm)
        self._like = algorithm.init(np.zeros(n))
        self._digest = wire.NOWHERE
        if x0 is not None:
            self.state = algorithm.init(x0)
            self.task = algorithm.plan(self.state)
            self._digest = wire.task_digest(self.task)

    @classmethod
    def joining(
        cls,
        description: bytes,
        *,
        sampler: Sampler | None = None,
        limits: Limits = Limits(),
    ) -> Replica:
        """The replica for the run of this description, within these limits."""
        run, settings = wire.unpack_description(description)
        if settings.get("desopt") != VERSION:
            text = f"desopt {settings.get('desopt')!r:.20} runs there, {VERSION} here"
            raise WireError(Reason.VERSION, text)
        _check_settings(settings, limits)
        try:
            algorithm = restore(settings["method"], sampler)
            layout_of(algorithm)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise WireError(Reason.DESCRIPTION, f"no method: {error}") from None
        n, workers, zeros = settings["n"], settings["workers"], np.zeros(settings["n"])
        x0 = zeros if settings.get("x0") == digest_of(zeros) else None
        return cls(algorithm, n, workers, run, x0=x0, settings=settings)

    @property
    def limit(self) -> int:
        """The longest message that ``follow`` accepts."""
        return wire.largest_update(state_bytes(self._like))

    def follow(self, data: bytes) -> Task:
        """Advance to the message's round; the task of that round."""
        message = wire.unseal(data, (wire.UPDATE, wire.SNAPSHOT), self.limit, self.run)
        if self.state is not None and message.round < self.state.round:
            text = f"round {message.round}; this replica is at {self.state.round}"
            raise WireError(Reason.LATE, text)
        if message.kind == wire.SNAPSHOT:
            state = wire.unpack_snapshot(message, self._like)
        else:
            state = self._replayed(message)
        task = self.algorithm.plan(state)
        if wire.task_digest(task) != message.digest:
            self._digest = wire.NOWHERE  # the answers or our state were wrong: ask for the state
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
        """This replica's round and digest, as a request for the current round."""
        if self._digest == wire.NOWHERE:
            return wire.seal(wire.ASK, self.run, 0, wire.NOWHERE)
        return wire.seal(wire.ASK, self.run, self.state.round, self._digest)

    def save(self) -> bytes:
        """The state as a message for ``follow``, for a process that will be restarted."""
        return wire.pack_snapshot(self.run, self._digest, self.state, in_float32(self.algorithm))

    def _replayed(self, message: wire.Message) -> Any:
        """The state after the rounds of an update, without those done already."""
        first, rounds = wire.unpack_update(message, self._layout.size)
        state = self.state
        if state is None or first > state.round:
            at = "nowhere" if state is None else f"at {state.round}"
            raise WireError(Reason.GAP, f"answers from round {first} on; this replica is {at}")
        for block in rounds[state.round - first :]:
            answers = wire.unpack_round(block, self.workers)
            try:
                state = self.algorithm.merge(state, answers)
            except (ValueError, ArithmeticError) as error:  # a forged state may hold any numbers
                raise WireError(Reason.PAYLOAD, str(error)) from None
        return state

    def _digest_of(self, task: Task) -> bytes:
        return self._digest if task is self.task else wire.task_digest(task)


def _check_settings(settings: Mapping[str, Any], limits: Limits) -> None:
    """Refuse values of a wrong type or beyond the limits; ``restore`` checks names."""
    for name in ("n", "workers", "batch_size"):
        _check_whole(name, settings.get(name), 1, getattr(limits, name))
    _check_whole("seed", settings.get("seed"), 0, 2**64 - 1)
    share = settings.get("participation", 1.0)
    if not _is_real(share) or not 0 < share <= 1:
        _refuse("participation", share, "a number > 0 and at most 1")
    method = settings.get("method")
    if not isinstance(method, dict):
        _refuse("method", method, "an object")
    for name, value in method.items():
        if name in _COUNTS:
            _check_whole(name, value, 1, getattr(limits, _COUNTS[name]))
        elif name == "seed":
            _check_whole(name, value, 0, 2**64 - 1)
        elif name == "sampler":
            _check_sampler(value, method.get("iterations"), limits)
        elif name == "box":
            _check_box(value, settings.get("n"))
        elif name in ("constrained", "float32"):
            if value is not True:
                _refuse(name, value, "true")
        elif name == "correlations":
            _check_correlations(value, settings["n"], method.get("population"), limits)
        elif name == "shares":
            _check_shares(value, settings["n"], settings["workers"], limits)
        elif name in ("name", "aggregate", "correction"):
            if not isinstance(value, str):
                _refuse(name, value, "a text")
        elif name == "step_size" and value == "auto":
            continue  # ``restore`` refuses it for a method without a rule
        elif not _is_real(value):
            _refuse(name, value, "a finite number")


def _check_shares(shares: Any, n: int, workers: int, limits: Limits) -> None:
    """The rows of every worker; a method that knows them remembers n numbers of each."""
    if not isinstance(shares, list) or len(shares) != workers:
        _refuse("shares", shares, f"a list of {workers} numbers of rows")
    _check_whole("memory", n * workers, 1, limits.memory)
    for share in shares:
        _check_whole("shares", share, 1, 2**63 - 1)


def _check_correlations(most: Any, n: int, population: Any, limits: Limits) -> None:
    """The most variables whose correlations are learnt: their update takes all members at once."""
    _check_whole("correlations", most, 0, 2**63 - 1)
    if n <= most:
        _check_whole("population", population, 1, limits.population)
        _check_whole("memory", n * population, 1, limits.memory)


def _check_sampler(sampler: Any, iterations: Any, limits: Limits) -> None:
    if not isinstance(sampler, dict) or not isinstance(sampler.get("name"), str):
        _refuse("sampler", sampler, "an object with a name")
    if "l" in sampler:
        _check_whole("mixture", sampler["l"], 1, limits.draws)
        _check_whole("iterations", iterations, 1, limits.iterations)
        _check_whole("draws", iterations * sampler["l"], 1, limits.draws)


def _check_box(box: Any, n: Any) -> None:
    """n bounds on each side, or one for all; null: none."""
    if not isinstance(box, dict) or box.keys() != {"n", "lower", "upper"} or box["n"] != n:
        _refuse("box", box, "an object with n, lower and upper")
    for side in (box["lower"], box["upper"]):
        values = side if isinstance(side, list) else [side]
        if isinstance(side, list) and len(side) != n:
            _refuse("box", len(side), f"{n} bounds")
        for value in values:
            if value is not None and not _is_real(value):
                _refuse("box", value, "a finite number or null")


def _check_whole(name: str, value: Any, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        _refuse(
            name,
            value,
            f"a whole number from {least} to {most}; see desopt.protocol.replica.Limits",
        )


def _is_real(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def _refuse(name: str, value: Any, allowed: str) -> NoReturn:
    raise WireError(Reason.DESCRIPTION, f"{name} is {value!r:.40}, not {allowed}")
