"""``minimize``: checks its arguments, builds the parts of a run and starts the loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from desopt.contract.types import Algorithm, FloatArray, Objective
from desopt.data import as_shards, expected_passes, shares, side_by_side, total_rows
from desopt.engines import Engine, Job
from desopt.methods import ProblemSize
from desopt.methods.base import in_float32
from desopt.methods.samplers import Sampler, as_sampler
from desopt.objectives import as_objective
from desopt.run import arguments, defaults, options
from desopt.run.observers.callbacks import Callback
from desopt.run.restrict import in_single_precision, restricted, within
from desopt.run.session import Session

if TYPE_CHECKING:
    from desopt.run.result import Result


def minimize(
    fun: Callable[..., float] | str | Objective,
    x0: Any = None,
    data: Any = None,
    *,
    method: str | Algorithm = "auto",
    workers: int | None = None,
    rounds: int | None = None,
    iterations: int = 100,
    batch_size: int = 1000,
    step_size: float | Literal["auto"] | None = None,
    momentum: float = 0.5,
    seed: int = 0,
    engine: str | Engine = "auto",
    callbacks: Callback | Iterable[Callback] = (),
    journal: str | os.PathLike[str] | None = None,
    sampler: Sampler | Callable[[np.random.Generator, int], Any] | str | None = None,
    mixture: int = 8,
    radius: float = 1e-6,
    population: int | None = None,
    correlations: int = 256,
    perturbations: int = 10,
    candidates: int = 4096,
    correction: str = "full",
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
    log_values: bool | None = None,
    ahead: bool = True,
    snapshot_every: int = 0,
    participation: float = 1.0,
    aggregate: str = "mean",
    float32: bool = False,
    bounds: Any = None,
    scale: str | Sequence[str | None] | None = None,
    constraints: Callable[[FloatArray], Any] | None = None,
) -> Result:
    """Minimise f(x) = E[F(x; xi)] with M workers that only compute values of F.

    The problem:

    fun
        ``fun(x, batch) -> float``, the mean of F over the batch (``fun(x)`` without data); the name
        of a loss (``desopt.LOSSES``); or an objective object. x is read-only and its memory is
        reused: copy it to keep it.
    x0
        The starting point. None means zeros, for linear models only.
    data
        An array, a sparse matrix or a tuple of them, split over the workers; a list with one of
        these, or one loader ``load()``, per worker; a function ``load(worker)``; a sampler
        ``draw(rng, b)``; or None.
    regularization
        The weight of a loss's penalty.
    bounds
        As SciPy takes them: ``Bounds``, a pair for each variable, or one for all. A side that is
        None is open.
    scale
        ``"linear"`` (a step of 1 is a quarter of the range between two bounds), ``"log"`` or
        ``"own"`` (the variable's own units), one name for all variables or a list. Default: linear;
        own for linear models.
    constraints
        A function of x that returns one or several violations. Where one is positive, ``fun`` is
        not called.
    setup
        A function called once per process before ``fun``, which receives its return value as the
        last argument.
    vectorized
        True for a function of a matrix, which returns a value per row of X (``fun(X)``, or
        ``fun(X, batch)`` with the batches stacked); or the conversion of X and the batches to your
        arrays, such as ``torch.from_numpy``.

    The method, with the symbols of the paper; a method ignores settings that it does not have:

    method
        A name in ``desopt.METHODS`` or an algorithm object, which has settings of its own.
        ``"auto"``: es-csa for a function without data, else des-mr.
    workers, iterations, batch_size
        M (None: 10, or one for a population without data), K and b.
    step_size
        alpha. ``"auto"``: found and adapted by the answers (es, des*, zo-nsgd). None: 1, for des-c
        0.3, for zo-nsgd ``"auto"``.
    momentum, mixture, sampler
        beta; l, the coordinates of a mixture step; the distribution of the mutations.
    radius, population
        mu of two-point estimates; lambda.
    correlations
        For ``cma-es``: the largest number of variables whose correlations it learns; above it,
        scales only.
    perturbations, candidates
        P of ``decomfl``, the directions of a local step; C of ``fedkseed``, those of a run.
    correction
        For ``des-c``: ``"full"`` or ``"bits"``. Full answers have four more bits per step, which
        are needed where n is larger than K.
    participation
        The share of the workers asked in a round.
    aggregate
        How the workers' points are combined: ``"mean"``, ``"median"`` or ``"trimmed-mean"``.
    float32
        Whether x and momentum are rounded to float32 after every round, which halves what a late
        worker of a federation needs (des, des-mg, des-mr).
    seed
        The seed of everything random.

    The engine:

    engine
        ``"auto"``, a name in ``desopt.ENGINES`` or an engine object. With ``"threads"``, ``fun``
        must be thread-safe.
    jobs
        The number of threads, processes or actors.
    round_timeout, evaluation_timeout
        The seconds for one worker's part of a round, and for a single value, which fails after
        that.
    attempts
        The attempts at a worker's part of a round or at a single value.
    ahead
        Whether idle cores compute values that are needed only if earlier steps are rejected.

    The end of the run:

    rounds
        T (None: 100, or as many as ``max_evaluations`` allows).
    max_evaluations, max_seconds
        Budgets. That of function values is never exceeded.
    target, patience
        A value of f at which to stop; the number of rounds without improvement after which to stop.

    Records:

    journal
        A file from which the same call resumes.
    snapshot_every
        The number of rounds between two states in the journal (0: none).
    log_values
        Whether single values are kept beside the journal (None: those of functions that take more
        than 10 ms).
    eval_every
        The number of rounds between evaluations of f over the data of all workers (None: up to 100
        evaluations, as long as they take little of the time; 0: never).
    callbacks
        Functions of a round's row, or of SciPy's ``intermediate_result``. True or StopIteration
        ends the run.
    progress
        Whether to show a progress bar (None: on a terminal).

    ``engine``, ``jobs`` and ``journal`` have no influence on the result.

    >>> result = desopt.minimize(lambda x: float(x @ x), np.ones(5), max_evaluations=500)
    >>> result.fun < 1e-3
    True
    >>> result.nfev <= 500
    True
    >>> rows = np.random.default_rng(0).standard_normal((500, 4))
    >>> labels = np.sign(rows @ np.ones(4))
    >>> result = desopt.minimize("lr", None, (rows, labels), rounds=5, engine="serial")
    >>> print(f"{result.initial_fun:.3f} -> {result.fun:.3f}, {result.method}")
    0.693 -> 0.043, des-mr
    """
    settings = options.checked("minimize", locals())
    job, start = job_of(fun, x0, data, settings)
    with Session(job, start, settings, plain=data is None) as run:
        return run.run(engine)


def job_of(fun: Any, x0: Any, data: Any, settings: SimpleNamespace) -> tuple[Job, FloatArray]:
    """Objective, data and algorithm of the run, and its starting point."""
    settings.callbacks = arguments.as_callbacks(settings.callbacks)
    settings.journal = arguments.as_path(settings.journal)
    objective = as_objective(fun, settings.regularization, settings.setup, settings.vectorized)
    defaults.choose_method(settings, data)
    if objective is fun:
        options.refuse_settings_beside("fun", fun, settings)
    alone = arguments.for_one_worker(settings.method)
    workers = 1 if alone else defaults.workers(settings, data)
    shards = objective.prepare(as_shards(data, workers, settings.seed))
    if alone and len(shards) != 1:
        name = getattr(settings.method, "name", settings.method)
        raise ValueError(f"{name} is for one worker: data must be one shard, got {len(shards)}")
    start = arguments.starting_point(x0, objective, shards)
    searched = restricted(objective, start, settings, given=x0 is not None)
    objective, start = searched.objective, searched.start
    problem = ProblemSize(
        n=start.size, rows=total_rows(shards), workers=len(shards),
        iterations=settings.iterations, batch_size=settings.batch_size, shares=shares(shards),
    )  # fmt: skip
    algorithm = within(_algorithm(settings, problem), searched)
    if settings.float32 or not getattr(algorithm, "scatters", False):
        start = np.asarray(start)
    if settings.float32:
        algorithm, start = in_single_precision(algorithm), in_float32(start)
    defaults.choose_rounds(settings, algorithm, len(shards))
    batch_size = None if data is None else settings.batch_size
    arguments.warn_outside_theory(algorithm, batch_size, settings.rounds)
    arguments.warn_of_auto(algorithm, problem, getattr(searched.objective, "penalty", None))
    passes = expected_passes(
        algorithm, start, rows=total_rows(shards), rounds=settings.rounds,
        eval_every=settings.eval_every,
        batch=settings.participation * len(shards) * settings.batch_size,
    )  # fmt: skip
    return Job(
        algorithm, objective, side_by_side(shards, passes), settings.batch_size, settings.seed,
        start.size, settings.participation, searched.space,
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
