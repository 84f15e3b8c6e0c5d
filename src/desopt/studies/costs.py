"""How long a case will take: a model of the kernels, corrected by what has been measured."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from desopt.contract.types import Batches
from desopt.data.matrix import DENSE_FROM
from desopt.methods.registry import METHODS
from desopt.studies.cases import Case
from desopt.studies.execute import Length, length
from desopt.studies.shapes import Shape, shape
from desopt.studies.store import Store

# Seconds on one core of a common server, fitted to ijcnn1, covtype, mnist and twins: of a case,
# a normal number, a loss, a step of a mixture search; of a row's entry where the minibatch stays
# in the cache, where all rows are read in order, and where a new minibatch is drawn, and there
# also of a row.
_CASE, _NORMAL, _LOSS, _STEP = 0.02, 4e-9, 5e-9, 3.5e-6
_NEAR, _IN_ORDER, _FAR, _FAR_ROW = 0.22e-9, 0.8e-9, 1.7e-9, 35e-9


def expected_seconds(case: Case, data_dir: str | None = None) -> float:
    """By the model alone."""
    known = shape(case.data, data_dir)
    rows = int(0.8 * (case.rows or known.rows))
    long = length(case, rows, known.n)
    entries = known.n if known.nonzeros >= DENSE_FROM * known.n else known.nonzeros
    one_pass = rows * (entries * _IN_ORDER + _LOSS)
    evaluation = 1.25 * one_pass * (min(case.points, long.rounds) + 1)
    return _CASE + evaluation + long.rounds * _round(case, long, known, entries, one_pass)


def _round(case: Case, long: Length, known: Shape, entries: float, one_pass: float) -> float:
    """Of all workers together."""
    normals = known.n * _NORMAL
    if long.population is not None:
        return long.population * (one_pass + case.workers * normals)
    near = normals + case.batch_size * (entries * _NEAR + _LOSS)
    far = normals + case.batch_size * (entries * _FAR + _FAR_ROW)
    touched = case.batch_size * min(1.0, case.mixture * entries / known.n)
    method = METHODS[case.method]
    each = far if method.batches is Batches.ITERATION else near
    if method.sampler is not None and not method.sampler.dense:
        each = _STEP + touched * _LOSS
    if method.pairs:
        each /= 2  # both values of a pair from one pass over the minibatch
    return case.workers * case.iterations * each


def estimates(
    store: Store | None, cases: Iterable[Case], data_dir: str | None = None
) -> dict[Case, float]:
    """Seconds of every case; those of a method and data set that were measured go by that."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for case, seconds in store.timings() if store else ():
        ratio = seconds / expected_seconds(case, data_dir)
        ratios.setdefault((case.data, case.method), []).append(ratio)
    factors = {kind: median(found) for kind, found in ratios.items()}
    usual = median(factors.values()) if factors else 1.0
    return {
        case: expected_seconds(case, data_dir) * factors.get((case.data, case.method), usual)
        for case in cases
    }
