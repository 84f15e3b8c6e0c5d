"""``Optimizer``: ask for points, evaluate them anywhere, tell the values.

The searches of a round wait for values here, whoever computes them: a laboratory, a cluster's
queue, a person. The values told are in a file before ``tell`` returns; the state after them is the
same as in ``minimize``, bit for bit.
"""

from __future__ import annotations

import math
import numbers
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from desopt.contract import checks
from desopt.contract.errors import check_name
from desopt.contract.types import FloatArray
from desopt.data import Batch, Shard
from desopt.engines.trials import NO_NUMBER, Key, Outcome, Trial, TrialRound
from desopt.run import arguments, options
from desopt.run.evaluations import Evaluation, Evaluations
from desopt.run.history import End, Status
from desopt.run.loop import Rounds
from desopt.run.minimize import job_of
from desopt.run.observers.evaluation import Evaluation as Objective
from desopt.run.session import Session
from desopt.run.values import SUFFIX, ValueLog
from desopt.system.terminal import warn

if TYPE_CHECKING:
    from desopt.run.result import Result

_TAG = 4  # characters of the run's digest in an id


@dataclass(frozen=True)
class OpenTrial:
    """A point to evaluate. ``tell`` takes its value by the ``id``, wherever it was computed.

    ``batch`` has the arguments of ``fun`` after x, if there are data. ``iteration`` is the number
    of the value in the worker's round; 0 is x itself, for methods that evaluate it.

    >>> (trial,) = desopt.Optimizer(np.ones(3)).ask()
    >>> trial.x.shape, trial.worker, trial.iteration
    ((3,), 0, 0)
    """

    id: str
    x: FloatArray
    worker: int
    round: int
    iteration: int
    batch: tuple[Any, ...] = field(default=(), repr=False)


class Optimizer:
    """A run by ask and tell, with the settings of ``minimize`` except those of engines.

    >>> measure = lambda x: float(x @ x)
    >>> opt = desopt.Optimizer(np.ones(3), method="es-csa", max_evaluations=200)
    >>> while trials := opt.ask(4):
    ...     for trial in trials:
    ...         used = opt.tell(trial, measure(trial.x))
    >>> opt.result().best_fun < 0.1
    True

    With ``journal``, every value told survives ``kill -9``, and the same call continues the run.
    """

    _closed = False
    #: The trial of the best value, if it was asked for here.
    _best: Trial | None = None

    def __init__(self, x0: Any = None, data: Any = None, **settings: Any) -> None:
        self._settings = _checked(settings)
        job, start = job_of(_Asked(), x0, data, self._settings)
        self._settings.log_values = True
        self._session = Session(job, start, self._settings, plain=data is None)
        self._job, self._log = job, self._session.log
        try:
            self.tag = self._log.begin()[:_TAG]
            evaluation = Objective(_BY_HAND, (), self._settings.rounds, 0, True)
            stopping, observers = self._session.observers(evaluation)
            self._rounds = Rounds(
                job, self._settings.rounds, self._session.record, observers, stopping.limit
            )
            self._rounds.begin()
            self._since = time.monotonic()
            self._seen = len(self._log.evaluations)  # values that the searches know of
            self._next_round()
            self._advance()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Optimizer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Trials that are open can be told after the next start."""
        self._closed = True
        self._session.close()

    def ask(self, count: int = 1, *, ahead: bool = False) -> list[OpenTrial]:
        """Up to ``count`` trials that were not handed out by this object before.

        There are no more than can be evaluated now: points that depend on missing values come
        later. With ``ahead`` there are also points that are needed only if steps before them are
        rejected. An empty list means: tell a value first, or the run has ended (``done``).
        """
        count = checks.whole("count", count)
        self._refuse_if_closed()
        self.refresh()
        trials = self._round.ask(count, ahead) if self._round is not None else []
        return [self._shown(trial) for trial in trials]

    def open(self) -> list[OpenTrial]:
        """The trials that were handed out and not told."""
        self.refresh()
        return [self._shown(trial) for trial in self._round.open()] if self._round else []

    def tell(
        self, trial: OpenTrial | str, value: Any = None, *, failed: bool = False,
        reason: str = "", seconds: float = 0.0,
    ) -> bool:  # fmt: skip
        """Tell the value of a trial, given as the trial or its id, in any order.

        A failed value (None, NaN, infinity or ``failed=True``) is a rejected step, or ranks last.
        Returns False if the value makes no difference, because it was told before or is no longer
        needed. The value is on disk when this returns.
        """
        key = self._key(trial)
        outcome = as_outcome(value, failed, reason, seconds)
        self._refuse_if_closed()
        self.refresh()
        before = self._log.evaluations.find(key)
        if before is not None:
            _warn_if_other(key, before, outcome)
            return False
        found = self._round.find(key) if self._round is not None else None
        if found is None:
            self._refuse_unknown(key)
            self._log.write(key, trial.x if isinstance(trial, OpenTrial) else None, outcome)
            return False
        self._log.add(found, replace(outcome, rows=self._function(found).rows))
        return self._use(found)

    def refresh(self) -> None:
        """Take over the values that other processes have told (``desopt.tell``)."""
        self._log.refresh()
        values = self._log.evaluations
        while self._seen < len(values):  # also those that came while a value was written
            key, self._seen = values[self._seen].key, self._seen + 1
            if self._round is not None and (found := self._round.find(key)) is not None:
                self._use(found)

    def known(self, trial: Trial) -> Outcome | None:
        """The outcome of a trial as the searches need it (see ``trials.Log``)."""
        outcome = self._log.known(trial)
        if outcome is not None and outcome.rows == 0:  # told by a process without the data
            outcome = replace(outcome, rows=self._function(trial).rows)
        best = self._log.evaluations.best
        if best is not None and best.key == trial.key:
            self._best = trial
        return outcome

    @property
    def done(self) -> bool:
        """Whether the run has ended: all rounds, the budget or the target."""
        return self._round is None

    @property
    def rounds(self) -> tuple[int, int]:
        """Rounds that have all their values, and those of the whole run."""
        return self._rounds.state.round, self._settings.rounds

    @property
    def evaluations(self) -> Evaluations:
        """The values told so far, also by other processes."""
        return self._log.evaluations

    def result(self) -> Result:
        """What has been reached so far: ``x`` after the last whole round, and all values."""
        end = self._end
        if end is None:
            state, untold = self._rounds.state, len(self._round.open()) if self._round else 0
            text = f"round {state.round + 1} of {self._settings.rounds}, {untold} trials open"
            end = End(Status.OPEN, text)
        result = self._session.result(end, _BY_HAND, "ask and tell", 0)
        best = self._log.evaluations.best
        if best is not None and self._session.plain:
            x = self._point_of(best)
            if x is not None:
                result.best_x, result.best_fun = x, best.value
        return result

    def _point_of(self, best: Evaluation) -> FloatArray | None:
        """The point of the best value. The log has points of few variables only."""
        if best.x is not None:
            return best.x.copy()
        if self._best is not None and self._best.key == best.key:
            return self._job.shown(self._best.x)
        if self._settings.journal is None or best.key.round >= self._rounds.state.round:
            return None  # a late value of a trial that was asked for ahead, told by its id
        from desopt.run.replay import replay

        return replay(
            self._settings.journal, trial=str(best.key), method=self._job.algorithm,
            constraints=self._settings.constraints,
        )  # fmt: skip

    def _use(self, trial: Trial) -> bool:
        """Continue with the value of a trial, which is in the log."""
        outcome = self.known(trial)
        assert outcome is not None
        used = self._round is not None and self._round.tell(trial, outcome)
        self._advance()
        return used

    def _function(self, trial: Trial) -> Any:
        """The worker's data that the trial's value is over: ``rows`` and ``batch``."""
        return self._job.function(trial.x, trial.key.round, trial.key.worker, trial.batches)

    def _next_round(self) -> None:
        self._round: TrialRound | None = None
        self._end: End | None = self._reached()
        task = self._rounds.task() if self._end is None else None
        if task is not None:
            self._task, self._round = task, TrialRound(self._job, task, self)
        elif self._end is None:
            self._end = self._rounds.close()

    def _advance(self) -> None:
        """Merge the rounds that have all their values."""
        while self._round is not None and (self._round.done or self._reached() is not None):
            if not self._round.done:  # the target is reached in the midst of a round
                self._round, self._end = None, self._reached()
                return
            row = self._rounds.merge(self._task, self._round.answers())
            row["seconds"] += time.monotonic() - self._since
            self._since = time.monotonic()
            self._rounds.finish(row)
            self._next_round()

    def _reached(self) -> End | None:
        """The end by the target, which any value told may reach."""
        target, best = self._settings.target, self._log.evaluations.best
        if target is None or best is None or best.value > target:
            return None
        return End(Status.TARGET, f"target {target:g} reached: {best.value:g}")

    def _shown(self, trial: Trial) -> OpenTrial:
        key = trial.key
        batch = self._function(trial).batch.at(trial.iteration).arguments()
        return OpenTrial(
            f"{self.tag}.{key}", self._job.shown(trial.x), key.worker, key.round, key.number, batch
        )

    def _key(self, trial: OpenTrial | str) -> Key:
        return key_of(trial.id if isinstance(trial, OpenTrial) else trial, self.tag)

    def _refuse_if_closed(self) -> None:
        """The value that ends a round would have no journal to go to."""
        if self._closed:
            raise ValueError(
                "this Optimizer is closed; make it again with the same arguments, journal "
                "included, to go on"
            )

    def _refuse_unknown(self, key: Key) -> None:
        """A trial of the past is harmless; one that was never asked for is an error."""
        now = self._rounds.state.round
        past = self._round is None or self._round.is_past(key) or key.round < now
        if not past or key.worker >= self._job.workers:
            raise ValueError(
                f"unknown id {self.tag}.{key}: no such trial has been asked for; the run is in "
                f"round {now}. See open() for the trials that wait for a value"
            )


def tell(
    journal: str | os.PathLike[str], id: str, value: Any = None, *, failed: bool = False,
    reason: str = "", seconds: float = 0.0,
) -> None:  # fmt: skip
    """Tell a value from another process. It is written for the ``Optimizer`` of this journal.

    The optimizer reads it with its next ``ask``, ``tell``, ``open`` or ``refresh``.

    >>> opt = desopt.Optimizer(np.ones(3), journal="lab.journal", max_evaluations=20)
    >>> (trial,) = opt.ask()
    >>> told = desopt.tell("lab.journal", trial.id, 3.0)  # in another process
    >>> opt.open()
    []
    >>> opt.close()
    """
    path = arguments.as_path(journal)
    assert path is not None
    values = path.with_name(path.name + SUFFIX)
    if not values.exists():
        raise FileNotFoundError(f"{values}: no run with this journal; ask for trials first")
    outcome = replace(as_outcome(value, failed, reason, seconds), rows=0)  # not known here
    with ValueLog(Path(values), None, always=True) as log:
        log.write(key_of(id, log.begin()[:_TAG]), None, outcome)


def key_of(id: Any, tag: str) -> Key:
    """The trial's name; refused if it belongs to another run."""
    if not isinstance(id, str):
        raise TypeError(f"give a trial or its id, a text such as '{tag}.0.0.3.1'; got {id!r:.80}")
    theirs, _, rest = id.partition(".")
    try:
        key = Key.parse(rest)
    except ValueError:
        raise ValueError(f"not an id: {id!r:.80}; ids look like '{tag}.0.0.3.1'") from None
    if theirs != tag:
        raise ValueError(f"{id!r:.80} is the id of another run; those of this one begin with {tag}")
    return key


def as_outcome(value: Any, failed: bool, reason: str, seconds: float) -> Outcome:
    """What was told, checked."""
    if not isinstance(reason, str):
        raise TypeError(f"reason must be a text, got {reason!r:.80}")
    seconds = checks.real("seconds", seconds)
    if failed or value is None:
        return Outcome(math.nan, 1, seconds, reason or "failed")
    number = getattr(value, "item", lambda: value)() if getattr(value, "ndim", 1) == 0 else value
    if isinstance(number, bool) or not isinstance(number, numbers.Real):
        raise TypeError(
            f"value must be a real number, or None for a failed evaluation; got {value!r:.80}"
        )
    number = checks.as_float(number)
    if not math.isfinite(number):
        return Outcome(number, 1, seconds, reason or f"{NO_NUMBER} {number}")
    return Outcome(number, 1, seconds)


def _warn_if_other(key: Key, known: Evaluation, outcome: Outcome) -> None:
    same = known.failed if outcome.failed else known.value == outcome.value
    if not same:
        warn(
            f"trial {key} was told {known.reason or known.value}; the first value counts",
            RuntimeWarning,
            stacklevel=3,
        )


def _checked(settings: dict[str, Any]) -> SimpleNamespace:
    """The settings of a run without an engine."""
    known = [name for name in options.options_of("minimize") if name not in options.CALLED]
    for name in settings:
        if name in options.CALLED:
            raise TypeError(
                f"Optimizer takes no {name}: it does not call a function; use desopt.minimize"
            )
        check_name("setting", name, known)
    return options.checked("minimize", settings)


class _Asked:
    """The objective of a run whose values are told."""

    compiled = False

    def settings(self) -> dict[str, Any]:
        return {"name": "asked"}

    def prepare(self, shards: Any, *, some: bool = False) -> Any:
        return shards

    def dimension(self, shards: list[Shard]) -> int | None:
        return None

    def bind(self, batch: Batch, x: FloatArray) -> Any:
        return SimpleNamespace(rows=batch.rows, batch=batch)


_BY_HAND: Any = SimpleNamespace(name="asked", quick=False)
