"""``minimize``: one loop over rounds; and ``replay``: the same loop without the workers."""

from __future__ import annotations

import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from desopt import journal as journals
from desopt._version import __version__
from desopt.algorithms import METHODS, restore
from desopt.algorithms.es_csa import default_population
from desopt.data import Nothing, Shard, as_shards, fingerprint, total_rows
from desopt.engines import Engine, Job
from desopt.engines.choice import choose
from desopt.history import History, Row
from desopt.objectives import LOSSES, LinearModel, PythonObjective
from desopt.progress import ProgressBar
from desopt.rng import MAX_DIMENSION, MAX_ROUNDS, STREAM_VERSION
from desopt.samplers import CustomSampler, Sampler
from desopt.stopping import Status, Stopping
from desopt.theory import MAX_MOMENTUM
from desopt.types import (
    Algorithm,
    FloatArray,
    JournalError,
    Objective,
    TheoryWarning,
    check_name,
)

Callback = Callable[[Row], Any]


@dataclass
class Result:
    """What ``minimize`` found, named as SciPy names it.

    ``fun`` is the full objective at ``x`` (NaN with ``eval_every=0``), ``nfev`` the number of
    values of the local functions that were computed, ``nit`` the number of rounds.
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
    engine, jobs, round_timeout, attempts
        ``"auto"``, ``"serial"``, ``"threads"``, ``"processes"`` or an engine object; the number
        of threads or processes; the seconds one worker's part of a round may take and the
        times it is tried (processes only).
    setup
        Called once per process before ``fun``; what it returns is ``fun``'s last argument.
    journal, snapshot_every
        A file that makes the run resumable: a call with the same arguments goes on where it
        ends. The state itself is added every ``snapshot_every`` rounds (0: never).
    eval_every, callbacks, progress
        The full objective is evaluated every ``eval_every`` rounds and after the last (None:
        about 100 times a run; 0: never). Callbacks get each round's row and stop the run by
        returning True. The bar is shown on a terminal, or as told.
    max_evaluations, max_seconds, target, patience
        Further ends of the run; the last two look at rounds where the objective was evaluated.

    The result depends on none of ``engine``, ``jobs``, ``journal``.
    """
    _check_counts(workers=workers, rounds=rounds, iterations=iterations, batch_size=batch_size)
    _check_counts(attempts=attempts, **({} if jobs is None else {"jobs": jobs}))
    if round_timeout is not None and not round_timeout > 0:
        raise ValueError(f"round_timeout must be seconds > 0 or None, got {round_timeout!r}")
    stopping = Stopping(max_evaluations, max_seconds, target, patience)
    objective = _objective(fun, regularization, setup)
    whole = method == "es" or getattr(method, "name", None) == "es"  # one worker has it all
    shards = objective.prepare(as_shards(data, 1 if whole else workers, seed))
    if whole and len(shards) != 1:
        raise ValueError(
            f"es is a method for one worker: data must be one shard, got {len(shards)}"
        )
    start = _starting_point(x0, objective, shards)
    algorithm = _algorithm(
        method,
        step_size=step_size, iterations=iterations, momentum=momentum, seed=seed, radius=radius,
        mixture=mixture, sampler=_sampler(sampler),
        population=population or default_population(
            len(shards), iterations, batch_size, total_rows(shards), start.size
        ),
    )  # fmt: skip
    _warn_outside_theory(algorithm, batch_size, rounds)
    job = Job(algorithm, objective, shards, batch_size, seed, start.size)
    chosen, why = choose(
        engine, job, start, rounds, jobs=jobs, timeout=round_timeout, attempts=attempts
    )
    if eval_every is None:
        eval_every = max(1, rounds // 100)
    run = _Run(job, chosen, why, rounds, eval_every, stopping, tuple(callbacks), snapshot_every)
    return run(start, None if journal is None else Path(journal), progress)


@dataclass
class _Run:
    """One call of ``minimize``, its arguments checked."""

    job: Job
    engine: Engine
    why: str
    rounds: int
    eval_every: int
    stopping: Stopping
    callbacks: Sequence[Callback]
    snapshot_every: int
    history: History = field(default_factory=History)
    initial: float = math.nan

    def __call__(self, x0: FloatArray, path: Path | None, show: bool | None) -> Result:
        algorithm = self.job.algorithm
        log, contents = self._reopen(x0, path)
        state = algorithm.init(x0)
        if contents is not None:
            state = forward(algorithm, contents, None)
            self.history = History(contents.rows)
            self.initial = _number(contents.header["initial_fun"])
        ended: tuple[Status, str] | None = None
        try:
            with ProgressBar(algorithm.name, self.rounds, state.round, show) as bar:
                bar.note("starting")
                self.engine.start(self.job)
                if contents is None:
                    self.initial = self._evaluate(x0)
                    if path is not None:
                        log = journals.Journal.create(path, self._header(x0), state)
                self.stopping.start(self.initial)
                for row in self.history:
                    ended = self.stopping.check(row)
                while ended is None and state.round < self.rounds:
                    state, row = self._round(state, log)
                    bar.update(row)
                    ended = self._after(row)
        except KeyboardInterrupt:
            raise Interrupted(self._interrupted(state, path)) from None
        finally:
            self.engine.close()
            if log is not None:
                log.close()
        return self._result(state, *(ended or (Status.ROUNDS, f"{self.rounds} rounds done")))

    def _round(self, state: Any, log: journals.Journal | None) -> tuple[Any, Row]:
        """One turn of the loop: plan, work, merge, and the row that tells of it."""
        began = time.perf_counter()
        answers = self.engine.round(self.job.algorithm.plan(state))
        state = self.job.algorithm.merge(state, answers)
        last = self.history[-1] if self.history else dict.fromkeys(_TOTALS, 0)
        sizes = sum(len(answer.payload) for answer in answers)
        row = Row(
            round=state.round,
            evaluations=last["evaluations"] + sum(a.evaluations for a in answers),
            samples=last["samples"] + sum(a.samples for a in answers),
            nans=last["nans"] + sum(a.nans for a in answers),
            bytes_up=last["bytes_up"] + sizes,
            bytes_down=last["bytes_down"] + self._bytes_down(state, last),
            seconds=last["seconds"] + time.perf_counter() - began,
            loss=math.nan,
        )
        if self.eval_every and (state.round % self.eval_every == 0 or state.round == self.rounds):
            row["loss"] = self._evaluate(state.x)
        row.x = state.x.view()
        row.x.flags.writeable = False
        self.history.append(row)
        if log is not None:
            log.append(row, answers)
            if self.snapshot_every and state.round % self.snapshot_every == 0:
                log.snapshot(state)
        return state, row

    def _bytes_down(self, state: Any, last: Mapping[str, Any]) -> int:
        """x to every worker at first; then the last round's answers, from which they go on."""
        if state.round == 1:
            return 8 * self.job.n * self.job.workers
        before = self.history[-2]["bytes_up"] if len(self.history) > 1 else 0
        return int(last["bytes_up"] - before) * self.job.workers

    def _evaluate(self, x: FloatArray) -> float:
        """The full objective: the mean of F over the data of all workers."""
        if not self.eval_every:
            return math.nan
        # Without data all workers have the same function.
        workers = [0] if isinstance(self.job.shards[0], Nothing) else range(self.job.workers)
        totals = self.engine.totals(x, workers)
        return sum(total for total, _ in totals) / sum(rows for _, rows in totals)

    def _after(self, row: Row) -> tuple[Status, str] | None:
        stops = [bool(callback(row)) for callback in self.callbacks]
        if any(stops):
            return Status.CALLBACK, "stopped by a callback"
        return self.stopping.check(row)

    def _reopen(
        self, x0: FloatArray, path: Path | None
    ) -> tuple[journals.Journal | None, journals.Contents | None]:
        """The journal to go on with, if there is one and it belongs to this run."""
        if path is None or not path.exists():
            if path is not None and not path.absolute().parent.is_dir():
                raise FileNotFoundError(f"journal: there is no folder {path.absolute().parent}")
            return None, None
        log, contents = journals.Journal.reopen(path)
        try:
            journals.check_same_run(path, contents.header, self._header(x0))
        except JournalError:
            log.close()
            raise
        return log, contents

    def _header(self, x0: FloatArray) -> dict[str, Any]:
        job = self.job
        return {
            "versions": {
                "desopt": ".".join(__version__.split(".")[:2]),
                "format": journals.FORMAT_VERSION,
                "stream": STREAM_VERSION,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
            "config": {
                "method": job.algorithm.settings(),
                "objective": job.objective.settings(),
                "workers": job.workers,
                "batch_size": job.batch_size,
                "n": job.n,
                "data": fingerprint(job.shards),
                "x0": journals.digest_of(x0),
            },
            "initial_fun": None if math.isnan(self.__dict__.get("initial", math.nan))
            else self.initial,
        }  # fmt: skip

    def _interrupted(self, state: Any, path: Path | None) -> Result:
        how = "give journal=FILE next time to be able to resume"
        if path is not None:
            how = f"the same call with journal={str(path)!r} goes on from there"
        message = f"interrupted after round {state.round}; {how}"
        return self._result(state, Status.INTERRUPTED, message)

    def _result(self, state: Any, status: Status, message: str) -> Result:
        last = self.history[-1] if self.history else dict.fromkeys(_TOTALS, 0)
        nans = int(last["nans"])
        if nans:
            message += f"; {nans} values were NaN and counted as rejected steps"
            warnings.warn(f"fun returned NaN {nans} times", RuntimeWarning, stacklevel=4)
        fun = self.history[-1]["loss"] if self.history else self.initial
        return Result(
            x=state.x,
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
        )


def _number(value: float | None) -> float:
    """JSON has no NaN."""
    return math.nan if value is None else value


_TOTALS = ("evaluations", "samples", "nans", "bytes_up", "bytes_down", "seconds")


def replay(
    journal: str | os.PathLike[str],
    round: int | None = None,
    *,
    sampler: Sampler | Callable[[np.random.Generator, int], Any] | None = None,
) -> FloatArray:
    """x after ``round`` rounds (None: all), rebuilt from the journal's answers bit for bit.

    A run with a sampler of the user's own needs it again here.
    """
    contents = journals.read(journal)
    done = len(contents.rows)
    if round is not None and not 0 <= round <= done:
        raise ValueError(f"round must be 0 to {done}, the rounds in {journal}; got {round!r}")
    algorithm = restore(contents.header["config"]["method"], _sampler(sampler))
    x: FloatArray = forward(algorithm, contents, round).x
    return x


def forward(algorithm: Algorithm, contents: journals.Contents, round: int | None) -> Any:
    """The state after ``round`` rounds: the nearest snapshot before it, and the merges since."""
    last = len(contents.rows) if round is None else round
    snapshot = max((s for s in contents.snapshots if s["round"] <= last), key=lambda s: s["round"])
    state = type(algorithm.init(snapshot["x"]))(**snapshot)
    while state.round < last:
        state = algorithm.merge(state, contents.answers[state.round])
    return state


# --- arguments -------------------------------------------------------------------------------


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if counts.get("rounds", 0) >= MAX_ROUNDS:
        raise ValueError(f"rounds must be below {MAX_ROUNDS}, got {counts['rounds']}")


def _objective(
    fun: Callable[..., float] | str | Objective, penalty: float, setup: Callable[[], Any] | None
) -> Objective:
    if isinstance(fun, str):
        check_name("fun", fun, LOSSES)
        return LinearModel(fun, penalty)
    if hasattr(fun, "on_rows"):
        return fun  # type: ignore[return-value]
    return PythonObjective(fun, setup)


def _algorithm(method: str | Algorithm, **settings: Any) -> Algorithm:
    if not isinstance(method, str):
        return method
    check_name("method", method, METHODS)
    return METHODS[method].make(method, settings)


def _sampler(sampler: Any) -> Sampler | None:
    if sampler is None or isinstance(sampler, Sampler):
        return sampler
    if callable(sampler):
        return CustomSampler(sampler)
    raise TypeError(f"sampler must be a Sampler or draw(rng, n), got {type(sampler).__name__}")


def _starting_point(x0: Any, objective: Objective, shards: Sequence[Shard]) -> FloatArray:
    n = objective.dimension(shards)
    if x0 is None:
        if n is None:
            raise ValueError("x0 is missing; only linear models on arrays can start at zeros")
        return np.zeros(n)
    x = np.array(x0, np.float64)  # a copy: the caller's array is never touched
    if x.ndim != 1 or not 1 <= x.size <= MAX_DIMENSION:
        raise ValueError(f"x0 must be a vector of at least one number, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"x0 must be finite; entry {np.flatnonzero(~np.isfinite(x))[0]} is not")
    if n is not None and x.size != n:
        raise ValueError(f"x0 has {x.size} numbers but the data have {n} columns")
    return x


def _warn_outside_theory(algorithm: Algorithm, batch_size: int, rounds: int) -> None:
    beta = getattr(algorithm, "momentum", None)
    if beta is None:
        return
    if beta >= MAX_MOMENTUM:
        warnings.warn(
            f"momentum {beta:g} is outside the theory, which covers momentum < "
            f"{MAX_MOMENTUM:.4g}; the run goes on",
            TheoryWarning,
            stacklevel=3,
        )
    if batch_size < math.sqrt(rounds):
        warnings.warn(
            f"batch_size {batch_size} is outside the theory, which covers batch_size >= "
            f"sqrt(rounds) = {math.sqrt(rounds):.4g}; the run goes on",
            TheoryWarning,
            stacklevel=3,
        )
