"""``minimize``: one loop over rounds; and ``replay``: the same loop without the workers."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from desopt._version import __version__
from desopt.contract import checks as number
from desopt.contract.codec import digest_of
from desopt.contract.errors import EngineError
from desopt.contract.participation import asked
from desopt.contract.streams import MAX_ITERATIONS, MAX_ROUNDS, SERVER, STREAM_VERSION
from desopt.contract.types import Algorithm, Answer, FloatArray, Objective, Task
from desopt.data import NoData, as_shards, fingerprint, total_rows
from desopt.engines import Engine, Job
from desopt.kernels.jit import compilation_noticed
from desopt.methods import ProblemSize, restore
from desopt.methods.samplers import Sampler, as_sampler
from desopt.objectives import as_objective
from desopt.run import arguments as check
from desopt.run import journal as journals
from desopt.run.choice import choose
from desopt.run.code_digest import code_digest, user_code_of
from desopt.run.history import History, Row
from desopt.run.observers.progress import ProgressBar
from desopt.run.stopping import Callback, Schedule, Status, Stopping
from desopt.system.terminal import warn

#: Coordinates that all steps of a worker's round may change, in a journal that is replayed.
MAX_COORDINATES = 2**27


@dataclass
class Result:
    """What ``minimize`` found, named as SciPy names it.

    ``fun`` is the full objective at ``x`` (NaN with ``eval_every=0``), ``nfev`` the number of
    values of the local functions that were computed, ``nit`` the number of rounds. ``best_fun``
    is the least of the objective's values in the history (and at x0) and ``best_x`` the point
    that has it: the first one of equals, ``x`` and NaN where nothing was evaluated.
    """

    x: FloatArray = field(repr=False)
    fun: float
    nfev: int
    nit: int
    success: bool
    status: int
    message: str
    engine: str
    initial_fun: float
    nan_count: int
    history: History = field(repr=False)
    best_x: FloatArray = field(repr=False)
    best_fun: float

    @property
    def digest(self) -> str:
        """A short name for the bits of ``x``, to compare runs by; as ``desopt replay --digest``."""
        return digest_of(self.x)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run. ``result`` holds what was reached; the journal, if any, resumes."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.message)
        self.result = result


def minimize(
    fun: Callable[..., float] | str | Objective,
    x0: Any = None,
    data: Any = None,
    *,
    method: str | Algorithm = "des-mr",
    workers: int = 10,
    rounds: int = 100,
    iterations: int = 100,
    batch_size: int = 1000,
    step_size: float = 1.0,
    momentum: float = 0.5,
    seed: int = 0,
    engine: str | Engine = "auto",
    callbacks: Iterable[Callback] = (),
    journal: str | os.PathLike[str] | None = None,
    sampler: Sampler | Callable[[np.random.Generator, int], Any] | None = None,
    mixture: int = 8,
    radius: float = 1e-6,
    population: int | None = None,
    regularization: float = 1e-6,
    setup: Callable[[], Any] | None = None,
    jobs: int | None = None,
    round_timeout: float | None = None,
    attempts: int = 3,
    eval_every: int | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    target: float | None = None,
    patience: int | None = None,
    progress: bool | None = None,
    snapshot_every: int = 0,
    participation: float = 1.0,
    aggregate: str = "mean",
) -> Result:
    """Minimise f(x) = E[F(x; xi)] with M workers that only compute values of F.

    fun
        ``fun(x, batch) -> float``, the mean of F over the batch (``fun(x)`` without data); or
        ``"lr"``, ``"nsvm"``, ``"lsvm"``; or an objective object. x is read-only, and its
        memory is used again: copy it to keep it.
    x0
        The starting point; None means zeros for the linear models.
    data
        An array, a sparse matrix or a tuple of them, dealt to the workers; a list of such, or
        of loaders ``load()``, one per worker; ``load(worker)``; a sampler ``draw(rng, b)``; or
        None.
    method, step_size, iterations, momentum, sampler, mixture, radius, population
        The method by name (see ``desopt.METHODS``) or an algorithm object, and alpha, K, beta,
        the mutation sampler, l, mu and lambda of the paper, where the method has them.
    workers, rounds, batch_size, seed
        M, T, b, and the seed of everything random.
    participation, aggregate
        The share of the workers that is asked in a round, at least one, drawn anew each time;
        and how their points become one: ``"mean"``, ``"median"`` or ``"trimmed-mean"`` (without
        the 30 % least and most), coordinate by coordinate, for des* and fed-zo*.
    engine, jobs, round_timeout, attempts
        ``"auto"``, ``"serial"``, ``"threads"``, ``"processes"``, ``"ray"`` or an engine object;
        the number of threads, processes or actors; the seconds one worker's part of a round may
        take and the times it is tried (processes and ray). With ``"threads"`` several threads call
        ``fun`` at once: one that is not thread-safe gives a wrong x, silently.
    setup
        Called once per process before ``fun``; what it returns is ``fun``'s last argument.
    journal, snapshot_every
        A file that makes the run resumable: a call with the same arguments goes on where it
        ends. The state itself is added every ``snapshot_every`` rounds (0: never).
    eval_every, callbacks, progress
        The full objective is evaluated every ``eval_every`` rounds and after the last (None:
        up to 100 times, while that takes little of the time; 0: never). It needs the data of
        all workers, also of those that are not asked: 0 for a million of them. Callbacks get each
        round's row and stop the run by returning True. The bar is shown on a terminal, or as
        told.
    max_evaluations, max_seconds, target, patience
        Further ends of the run; the last two look at rounds where the objective was evaluated.
        ``max_evaluations`` is never exceeded: the last round has fewer iterations, or is left
        out where not even one for each worker remains.

    The result depends on none of ``engine``, ``jobs``, ``journal``.
    """
    seed = number.whole("seed", seed, 0, 2**64 - 1)
    rounds = number.whole("rounds", rounds, 1, MAX_ROUNDS)
    batch_size = number.whole("batch_size", batch_size)
    workers = number.whole("workers", workers, 1, SERVER)
    stopping = Stopping(
        max_evaluations=number.optional(number.whole, "max_evaluations", max_evaluations),
        max_seconds=number.optional(number.positive, "max_seconds", max_seconds),
        target=number.optional(number.real, "target", target),
        patience=number.optional(number.whole, "patience", patience),
    )
    schedule = Schedule(
        rounds=rounds,
        eval_every=number.optional(number.whole, "eval_every", eval_every, 0),
        snapshot_every=number.whole("snapshot_every", snapshot_every, 0),
        callbacks=check.as_callbacks(callbacks),
        stopping=stopping,
    )
    path = check.as_path(journal)
    objective = as_objective(fun, regularization, setup)
    alone = check.for_one_worker(method)
    shards = objective.prepare(as_shards(data, 1 if alone else workers, seed))
    if alone and len(shards) != 1:
        name = getattr(method, "name", method)
        raise ValueError(f"{name} is for one worker: data must be one shard, got {len(shards)}")
    start = check.starting_point(x0, objective, shards)
    iterations = number.whole("iterations", iterations, 1, MAX_ITERATIONS)
    problem = ProblemSize(
        n=start.size,
        rows=total_rows(shards),
        workers=len(shards),
        iterations=iterations,
        batch_size=batch_size,
    )
    algorithm = check.as_algorithm(
        method,
        problem,
        step_size=number.positive("step_size", step_size),
        iterations=iterations,
        momentum=number.real("momentum", momentum),
        seed=seed,
        radius=number.positive("radius", radius),
        mixture=number.whole("mixture", mixture),
        sampler=as_sampler(sampler),
        population=number.optional(number.whole, "population", population, 2),
        aggregate=check.as_aggregate(aggregate),
    )
    check.fits_aggregate(algorithm, aggregate, start.size)
    check.warn_outside_theory(algorithm, None if data is None else batch_size, rounds)
    share = number.share("participation", participation)
    job = Job(algorithm, objective, shards, batch_size, seed, start.size, share)
    chosen, why = choose(
        engine,
        job,
        start,
        rounds,
        jobs=number.optional(number.whole, "jobs", jobs),
        timeout=number.optional(number.positive, "round_timeout", round_timeout),
        attempts=number.whole("attempts", attempts),
    )
    return _Run(job, chosen, why, schedule, path)(start, progress)


def _nothing_yet() -> dict[str, int]:
    """The totals before the first round."""
    names = "evaluations", "samples", "nans", "bytes_up", "bytes_down", "seconds", "repeated"
    return dict.fromkeys(names, 0)


@dataclass
class _Run:
    """One call of ``minimize``, its arguments checked."""

    job: Job
    engine: Engine
    why: str
    schedule: Schedule
    path: Path | None
    history: History = field(default_factory=History)
    initial: float = math.nan
    log: journals.Journal | None = None
    # Seconds of all evaluations of this call, and of the last one; totals before this call.
    _evaluating: float = 0.0
    _each: float = 0.0
    _before: Mapping[str, Any] = field(default_factory=_nothing_yet)
    _limit: int | None = None  # of the next round's task; 0: there is none
    _best: tuple[float, FloatArray | None] = (math.inf, None)  # value and point
    _code: dict[str, str] = field(default_factory=dict)

    def __call__(self, x0: FloatArray, show: bool | None) -> Result:
        algorithm, schedule = self.job.algorithm, self.schedule
        if self.path is not None:  # before anything runs: closures may change
            self._code = user_code_of(self.job.objective, algorithm, self.job.shards)
        state = self._resume(x0) or algorithm.init(x0)
        ended: tuple[Status, str] | None = None
        try:
            with (
                ProgressBar(algorithm.name, schedule.rounds, state.round, show) as bar,
                compilation_noticed(bar.compiling),
            ):
                bar.note("starting")
                self.engine.start(self.job)
                self._plan(state, self._last()["evaluations"])
                if state.round == 0:
                    self.initial = self._evaluate()
                    self._compare(self.initial, x0)
                    self._evaluating = 0.0  # it may have compiled or loaded something
                schedule.stopping.start(self.initial)
                for row in self.history:
                    ended = schedule.stopping.check(row)
                ended = ended or self._out_of_values(self._last())
                while ended is None and state.round < schedule.rounds:
                    before, answers, state, row = self._round(state)
                    ended = schedule.stopping.check(row) or self._out_of_values(row)
                    if ended is not None:
                        self._complete(row, state)
                    self._record(before, answers, state, row)
                    bar.update(row)
                    if self._stopped_by_callback(row, state):
                        ended = Status.CALLBACK, "stopped by a callback"
                if self.history:
                    self._complete(self.history[-1], state)
        except (KeyboardInterrupt, SystemError) as error:
            if not _is_interrupt(error):
                raise
            raise Interrupted(self._interrupted(state)) from None
        finally:
            self.engine.close()
            if self.log is not None:
                self.log.close()
        return self._result(state, *(ended or (Status.ROUNDS, f"{state.round} rounds done")))

    def _round(self, before: Any) -> tuple[Any, list[Answer], Any, Row]:
        """One turn of the loop: plan, work, merge, and the row that tells of it."""
        began = time.perf_counter()
        answers: list[Answer] = []
        task = replace(self.job.algorithm.plan(before), limit=self._limit)
        arriving = self._arriving(task, answers)
        state = self.job.algorithm.merge(before, arriving)
        for _ in arriving:  # whatever the merge did not look at
            pass
        last = self._last()
        evaluations = last["evaluations"] + sum(a.evaluations for a in answers)
        self._plan(state, evaluations)
        up, down = self.engine.traffic()
        row = Row(
            round=state.round,
            evaluations=evaluations,
            samples=last["samples"] + sum(a.samples for a in answers),
            nans=last["nans"] + sum(a.nans for a in answers),
            bytes_up=last["bytes_up"] + up,
            bytes_down=last["bytes_down"] + down,
            seconds=last["seconds"] + time.perf_counter() - began,
            loss=math.nan,
            answers=len(answers),
            repeated=self._before["repeated"] + self.engine.repeated,
        )
        searching = row["seconds"] - self._before["seconds"]
        if self.schedule.evaluates(state.round, searching, self._evaluating, self._each):
            self._complete(row, state)
        return before, answers, state, row

    def _complete(self, row: Row, state: Any) -> None:
        """Evaluate the full objective for this row, unless it has been."""
        if math.isnan(row["loss"]):
            row["loss"] = self._evaluate()
            self._compare(row["loss"], state.x)

    def _compare(self, loss: float, x: FloatArray) -> None:
        """Remember the best point; no state's x is ever written to, so it need not be copied."""
        if math.isfinite(loss) and loss < self._best[0]:
            self._best = loss, x

    def _record(self, before: Any, answers: list[Answer], state: Any, row: Row) -> None:
        """Into the history and the journal, which begins with the first round that is done."""
        self.history.append(row)
        if self.path is None:
            return
        if self.log is None:
            self.log = journals.Journal.create(self.path, self._header(before.x), before)
        self.log.append(row, answers)
        every = self.schedule.snapshot_every
        if every and state.round % every == 0:
            self.log.snapshot(state)

    def _stopped_by_callback(self, row: Row, state: Any) -> bool:
        if not self.schedule.callbacks:
            return False
        seen = Row(row)  # theirs to keep; the history would keep a point per round
        seen.x = state.x.view()
        seen.x.flags.writeable = False
        stops = [bool(callback(seen)) for callback in self.schedule.callbacks]
        return any(stops)

    def _last(self) -> Mapping[str, Any]:
        return self.history[-1] if self.history else self._before

    def _arriving(self, task: Task, answers: list[Answer]) -> Iterator[Answer]:
        """A round's answers as they come; ``answers`` keeps what a journal needs of them.

        Points and changes are let go once they are merged. An engine may lose answers, but not
        make them up or mix them.
        """
        asked = iter(self.job.asked(task.round))
        for answer in self.engine.round(task):
            answers.append(answer.bare())
            if answer.worker not in asked:  # looks for it from where the last one was found
                workers = [each.worker for each in answers[-20:]]
                raise EngineError(
                    f"engine {self.engine.name} returned answers of workers {workers} in round "
                    f"{task.round}; it must return those of job.asked(round), once each and in "
                    "order"
                )
            yield answer

    def _plan(self, state: Any, spent: int) -> None:
        """What the next round may cost; the engine begins it."""
        schedule, cost = self.schedule, getattr(self.job.algorithm, "cost", None)
        self._limit = None
        if state.round < schedule.rounds:
            self._limit = schedule.stopping.limit(spent, self._asked, cost)
        self.engine.begin(state, self._limit)

    @property
    def _asked(self) -> int:
        """How many workers have a part in a round."""
        return asked(self.job.workers, self.job.participation)

    def _out_of_values(self, last: Mapping[str, Any]) -> tuple[Status, str] | None:
        """Whether ``max_evaluations`` leaves less than a round needs."""
        if self._limit != 0:
            return None
        return self.schedule.stopping.out_of_values(int(last["evaluations"]), self._asked)

    def _evaluate(self) -> float:
        """The full objective at the current x: the mean of F over the data of all workers."""
        if self.schedule.eval_every == 0:
            return math.nan
        began = time.perf_counter()
        # Without data all workers have the same function.
        workers = [0] if isinstance(self.job.shards[0], NoData) else range(self.job.workers)
        totals = self.engine.evaluate(workers)
        self._each = time.perf_counter() - began
        self._evaluating += self._each
        return sum(total for total, _ in totals) / sum(rows for _, rows in totals)

    def _resume(self, x0: FloatArray) -> Any:
        """The state that the journal ends with, if there is one and it belongs to this run."""
        if self.path is None or not self.path.exists():
            return None
        path, mine = self.path, self._header(x0)

        def check(header: dict[str, Any]) -> None:
            journals.check_versions(path, header, mine["versions"])
            journals.check_config(path, header, mine["config"])

        self.log, contents = journals.Journal.reopen(path, check)
        try:
            _warn_of_other_code(path, contents, mine["code"], 5)
            return self._restore(contents)
        except BaseException:
            self.log.close()
            raise

    def _restore(self, contents: journals.Contents) -> Any:
        """Take over history, totals and the best point; the state at the end."""
        self.history = History(contents.rows)
        self._before = self._last()
        self.initial = _number(contents.header["initial_fun"])
        losses = [self.initial, *(row["loss"] for row in contents.rows)]
        finite = [round for round, loss in enumerate(losses) if math.isfinite(loss)]
        best = min(finite, key=lambda round: (losses[round], round), default=0)
        with journals.refusing(self.path or "", "what it holds"):
            at_best, last = forward(self.job.algorithm, contents, (best, len(contents.rows)))
        self._compare(losses[best], at_best.x)
        return last

    def _header(self, x0: FloatArray) -> dict[str, Any]:
        job = self.job
        return {
            "versions": versions(),
            "code": self._code,
            "config": {
                "method": job.algorithm.settings(),
                "objective": job.objective.settings(),
                "workers": job.workers,
                "participation": job.participation,
                "batch_size": job.batch_size,
                "n": job.n,
                "data": fingerprint(job.shards),
                "x0": digest_of(x0),
            },
            "initial_fun": None if math.isnan(self.__dict__.get("initial", math.nan))
            else self.initial,
        }  # fmt: skip

    def _interrupted(self, state: Any) -> Result:
        how = "give journal=FILE next time to be able to resume"
        if self.path is not None:
            how = f"the same call with journal={str(self.path)!r} goes on from there"
        message = f"interrupted after round {state.round}; {how}"
        return self._result(state, Status.INTERRUPTED, message)

    def _result(self, state: Any, status: Status, message: str) -> Result:
        last = self._last()
        nans = int(last["nans"])
        if nans:
            message += f"; {nans} values were not finite and counted as rejected steps"
            warn(f"fun returned NaN or infinity {nans} times", RuntimeWarning, stacklevel=4)
        fun = self.history[-1]["loss"] if self.history else self.initial
        best, best_x = self._best
        return Result(
            x=state.x.copy(),  # callbacks may have kept the state's own
            fun=float(fun),
            nfev=int(last["evaluations"]),
            nit=int(state.round),
            success=status is not Status.INTERRUPTED and bool(np.isfinite(state.x).all()),
            status=int(status),
            message=f"{message} ({self.why})",
            engine=self.engine.name,
            initial_fun=float(self.initial),
            nan_count=nans,
            history=self.history,
            best_x=state.x.copy() if best_x is None else best_x.copy(),
            best_fun=float(best) if best_x is not None else math.nan,
        )


def _warn_of_other_code(
    path: Path, contents: journals.Contents, mine: Mapping[str, str], stacklevel: int
) -> None:
    """Other data are refused; of other code only its author knows what it means."""
    names = journals.other_code(contents.header, versions(), mine)
    if names:
        warn(
            f"{path}: this run began with other code of {', '.join(names)}; it goes on with what "
            "is given now",
            RuntimeWarning,
            stacklevel=stacklevel,
        )


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether it was Ctrl-C; from inside a compiled kernel it comes wrapped in SystemErrors."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)


def versions() -> dict[str, Any]:
    """What a journal's header says of the software; the first three decide bits."""
    return {
        "desopt": ".".join(__version__.split(".")[:2]),
        "format": journals.FORMAT_VERSION,
        "stream": STREAM_VERSION,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _number(value: float | None) -> float:
    """JSON has no NaN."""
    return math.nan if value is None else value


def replay(
    journal: str | os.PathLike[str],
    round: int | None = None,
    *,
    sampler: Sampler | Callable[[np.random.Generator, int], Any] | None = None,
) -> FloatArray:
    """x after ``round`` rounds (None: all), rebuilt from the journal's answers bit for bit.

    A run with a sampler of the user's own needs it again here.
    """
    return replayed(Path(journal), journals.read(journal), round, sampler)


def replayed(
    path: Path, contents: journals.Contents, round: int | None = None, sampler: Any = None
) -> FloatArray:
    """``replay`` of a journal that was read already."""
    journals.check_versions(path, contents.header, versions())
    done = len(contents.rows)
    if round is not None and not 0 <= round <= done:
        raise ValueError(f"round must be 0 to {done}, the rounds in {path}; got {round!r}")
    own = as_sampler(sampler)
    if own is not None:
        _warn_of_other_sampler(path, contents, sampler)
    with journals.refusing(path, "what it holds"):
        method = contents.header["config"]["method"]
        _check_plausible(method)
        (state,) = forward(restore(method, own), contents, (done if round is None else round,))
    x: FloatArray = state.x
    return x


def _warn_of_other_sampler(path: Path, contents: journals.Contents, sampler: Any) -> None:
    theirs = contents.header.get("code")
    if isinstance(theirs, dict) and "sampler" in theirs:
        mine = {**theirs, "sampler": code_digest(sampler) or theirs["sampler"]}
        _warn_of_other_code(path, contents, mine, 5)


def _check_plausible(method: Mapping[str, Any]) -> None:
    """Refuse settings that no run can have had, before memory is taken by them."""
    whole = {name: method[name] for name in ("iterations", "seed", "population") if name in method}
    whole["mixture"] = method.get("sampler", {}).get("l", 1)
    for name, value in whole.items():
        number.whole(name, value, 0)
    if whole["mixture"] * whole.get("iterations", 1) > MAX_COORDINATES:
        raise ValueError(f"{whole['mixture']} coordinates in each of {whole['iterations']} steps")


def forward(algorithm: Algorithm, contents: journals.Contents, rounds: Iterable[int]) -> list[Any]:
    """The states after these rounds, which must not fall.

    Each from the nearest state before it, a snapshot or one of these, by the merges since.
    """
    like = algorithm.init(np.zeros(contents.header["config"]["n"]))
    found: list[Any] = []
    for last in rounds:
        snapshot = max((s for s in contents.snapshots if s.round <= last), key=lambda s: s.round)
        if not found or found[-1].round < snapshot.round:
            state = snapshot.state(like)
        while state.round < last:
            state = algorithm.merge(state, contents.answers[state.round])
        found.append(state)
    return found
