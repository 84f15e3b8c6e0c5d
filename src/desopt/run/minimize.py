"""``minimize``: checks its arguments, builds the parts of a run and starts the loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from desopt.contract.types import Algorithm, FloatArray, Objective
from desopt.data import as_shards, expected_passes, side_by_side, total_rows
from desopt.engines import Engine, Job
from desopt.kernels.jit import compilation_noticed
from desopt.methods import ProblemSize
from desopt.methods.samplers import Sampler, as_sampler
from desopt.objectives import as_objective
from desopt.run import arguments, options
from desopt.run.choice import choose
from desopt.run.history import End, Interrupted, Status
from desopt.run.loop import loop
from desopt.run.observers import Observer, Record
from desopt.run.observers.callbacks import Callback, Callbacks
from desopt.run.observers.evaluation import Evaluation
from desopt.run.observers.journal import JournalWriter
from desopt.run.observers.progress import ProgressBar
from desopt.run.stopping import RULES, Stopping

if TYPE_CHECKING:
    from desopt.run.result import Result


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
    callbacks: Callback | Iterable[Callback] = (),
    journal: str | os.PathLike[str] | None = None,
    sampler: Sampler | Callable[[np.random.Generator, int], Any] | None = None,
    mixture: int = 8,
    radius: float = 1e-6,
    population: int | None = None,
    correlations: int = 256,
    regularization: float = 1e-6,
    setup: Callable[[], Any] | None = None,
    vectorized: bool | Callable[[Any], Any] = False,
    jobs: int | None = None,
    round_timeout: float | None = None,
    evaluation_timeout: float | None = None,
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
        ``fun(x, batch) -> float``, the mean of F over the batch (``fun(x)`` without data); the name
        of a loss (``desopt.LOSSES``); or an objective object. x is read-only and reused: copy it
        to keep it.
    x0, data
        The starting point; None means zeros for linear models. The data: an array, a sparse matrix
        or a tuple of them, split over the workers; a list of such or of loaders ``load()``, one per
        worker; ``load(worker)``; a sampler ``draw(rng, b)``; or None.
    method, step_size, iterations, momentum, sampler, mixture, radius, population
        A name in ``desopt.METHODS`` or an algorithm object, which has settings of its own; alpha,
        K, beta, mutation sampler, l, mu and lambda of the paper, for the methods that have them.
    correlations
        Of ``cma-es``: the most variables for which it learns them; above, scales only.
    workers, rounds, batch_size, seed, participation, aggregate
        M, T, b, the seed of everything random, the share of the workers asked in a round, and how
        their points are combined: ``"mean"``, ``"median"`` or ``"trimmed-mean"``.
    regularization, setup, vectorized
        The weight of a loss's penalty; a function called once per process before ``fun``, whose
        return value is the last argument of ``fun``; True for a function of a matrix, which
        returns a value per row of X (``fun(X)`` or ``fun(X, batch)``, batches stacked), or the
        conversion of X and batches to your arrays, such as ``torch.from_numpy``.
    engine, jobs, round_timeout, evaluation_timeout, attempts
        ``"auto"``, a name in ``desopt.ENGINES`` or an engine object; the number of threads,
        processes or actors; the seconds for one worker's part of a round, and for a single value,
        which fails after that; the attempts at either. With ``"threads"``, ``fun`` must be
        thread-safe.
    journal, snapshot_every
        A file from which the same call resumes; rounds between states in it (0: none).
    eval_every, callbacks, progress
        Rounds between evaluations of f over the data of all workers (None: up to 100 evaluations,
        as long as they take little of the time; 0: never). Functions of a round's row, or of
        SciPy's ``intermediate_result``; True or StopIteration ends the run. Whether to show a bar
        (None: on a terminal).
    max_evaluations, max_seconds, target, patience
        Budgets, never exceeded in function values; a value of f, or rounds without improvement.

    ``engine``, ``jobs`` and ``journal`` have no influence on the result.
    """
    settings = options.checked("minimize", locals())
    job, start = _job(fun, x0, data, settings)
    chosen, why = choose(engine, job, start, settings)
    evaluated = range(1 if data is None else job.workers)  # without data all have one function
    return _run(job, start, chosen, why, evaluated, settings)


def _job(fun: Any, x0: Any, data: Any, settings: SimpleNamespace) -> tuple[Job, FloatArray]:
    """Objective, data and algorithm of the run, and its starting point."""
    settings.callbacks = arguments.as_callbacks(settings.callbacks)
    settings.journal = arguments.as_path(settings.journal)
    objective = as_objective(fun, settings.regularization, settings.setup, settings.vectorized)
    if objective is fun:
        options.refuse_settings_beside("fun", fun, settings)
    alone = arguments.for_one_worker(settings.method)
    shards = objective.prepare(as_shards(data, 1 if alone else settings.workers, settings.seed))
    if alone and len(shards) != 1:
        name = getattr(settings.method, "name", settings.method)
        raise ValueError(f"{name} is for one worker: data must be one shard, got {len(shards)}")
    start = arguments.starting_point(x0, objective, shards)
    algorithm = _algorithm(settings, ProblemSize(
        n=start.size, rows=total_rows(shards), workers=len(shards),
        iterations=settings.iterations, batch_size=settings.batch_size,
    ))  # fmt: skip
    batch_size = None if data is None else settings.batch_size
    arguments.warn_outside_theory(algorithm, batch_size, settings.rounds)
    passes = expected_passes(
        algorithm, start, rows=total_rows(shards), rounds=settings.rounds,
        eval_every=settings.eval_every,
        batch=settings.participation * len(shards) * settings.batch_size,
    )  # fmt: skip
    return Job(
        algorithm, objective, side_by_side(shards, passes), settings.batch_size, settings.seed,
        start.size, settings.participation,
    ), start  # fmt: skip


def _algorithm(settings: SimpleNamespace, problem: ProblemSize) -> Algorithm:
    """The method with its settings."""
    settings.sampler = as_sampler(settings.sampler)
    names = [name for name, o in options.options_of("minimize").items() if o.part == "method"]
    given = {name: getattr(settings, name) for name in names}
    algorithm = arguments.as_algorithm(settings.method, problem, seed=settings.seed, **given)
    arguments.fits_aggregate(algorithm, settings.aggregate, problem.n)
    if algorithm is settings.method:
        options.refuse_settings_beside("method", algorithm, settings)
    return algorithm


def _run(
    job: Job, x0: FloatArray, engine: Engine, why: str, evaluated: Sequence[int],
    settings: SimpleNamespace,
) -> Result:  # fmt: skip
    """The run with its observers, resumed if there is a journal."""
    rounds = settings.rounds
    rules = {name: getattr(settings, name) for name in RULES}
    by_loss = settings.target is not None or settings.patience is not None
    evaluation = Evaluation(engine, evaluated, rounds, settings.eval_every, by_loss)
    stopping = Stopping(job, rounds, evaluation, **rules)
    bar = ProgressBar(
        job.algorithm.name, rounds, settings.progress, max_evaluations=settings.max_evaluations,
        max_seconds=settings.max_seconds,
    )  # fmt: skip
    with ExitStack() as stack:
        record, journals = Record(job.algorithm.init(x0)), []
        if settings.journal is not None:
            journal = JournalWriter(settings.journal, job, settings.snapshot_every)
            journals.append(stack.enter_context(journal))
            record = journal.resumed(x0) or record
        observers: list[Observer] = [
            evaluation, stopping, record, *journals, bar, Callbacks(settings.callbacks),
        ]  # fmt: skip
        try:
            with bar, compilation_noticed(bar.compiling):
                end = loop(job, engine, rounds, record, observers, stopping.limit)
        except (KeyboardInterrupt, SystemError) as error:
            if not _is_interrupt(error):
                raise
            end = _interrupted(record, settings.journal)
            raise Interrupted(record.result(end, engine.name, why)) from None
    return record.result(end, engine.name, why)


def _interrupted(record: Record, journal: os.PathLike[str] | None) -> End:
    how = "give journal=FILE next time to be able to resume"
    if journal is not None:
        how = f"the same call with journal={str(journal)!r} goes on from there"
    return End(Status.INTERRUPTED, f"interrupted after round {record.state.round}; {how}")


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C, which compiled kernels wrap in SystemErrors."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)
