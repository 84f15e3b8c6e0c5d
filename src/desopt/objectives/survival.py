"""Cox's proportional hazards: the risk of patient i at any time is proportional to e^(z_i^T x).

f(x) = -(1/N) log PL(x) + ridge/2 ||x||^2 + lasso ||x||_1, PL the partial likelihood (Cox, 1975).
Data are (X, time, event): the last time that a patient was seen, and whether the event took place
then (1) or the patient was lost (0).

An event is compared with the patients *of the same batch* who are still at risk. So f is no mean
over rows, and the sum over workers is the partial likelihood of a model in which every worker is a
stratum, with a baseline hazard of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NoReturn, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from desopt.contract import checks
from desopt.contract.errors import check_name
from desopt.contract.space import Box
from desopt.contract.types import FloatArray, IndexArray, LocalSearch
from desopt.data import Batch, Loaders, NoData, Partitioned, Rows, Shard, as_rows
from desopt.kernels.cox import RiskSets, cox_value, search_cox
from desopt.kernels.layouts import Dense
from desopt.kernels.mixture import UNSEARCHED
from desopt.methods.proposals import MixtureProposals
from desopt.methods.searches import OnePlusOne, TwoParts
from desopt.objectives.linear import as_plain
from desopt.objectives.local import drive
from desopt.objectives.tables import Table, as_float_matrix, check_matrix, column_count

Ties = Literal["efron", "breslow"]


class SurvivalTable(Table):
    """X as finite float64, times as float64, events as 0 and 1."""

    def __new__(cls, arrays: Any, where: str, done: dict[int, Any]) -> SurvivalTable:
        X, *vectors = arrays
        if id(X) not in done:
            done[id(X)] = as_float_matrix(X, where)
        return tuple.__new__(cls, (done[id(X)], *(np.require(v, float, "C") for v in vectors)))

    @cached_property
    def ones(self) -> FloatArray:
        """What the kernels of linear models multiply rows with: their labels."""
        return np.ones(self[0].shape[0])

    def risk_sets(self, numbers: IndexArray, efron: bool) -> RiskSets:
        """These rows by falling time, events first."""
        _X, time, event = self
        rows = numbers[np.lexsort((-event[numbers], -time[numbers]))]
        sorted_time = time[rows]
        start = np.flatnonzero(np.append(True, sorted_time[1:] != sorted_time[:-1]))
        events = np.add.reduceat(event[rows].astype(np.int64), start)
        return RiskSets(rows, np.append(start, rows.size), events, efron)


@dataclass(frozen=True)
class Cox:
    """Cox regression for ``minimize``; data are (X, time, event), X dense or sparse.

    ``ridge`` and ``lasso`` are the weights of the penalties, relative to the likelihood per row.
    ``ties`` says how events at the same time count: ``"efron"`` or ``"breslow"``.

    An event is compared with rows of the same minibatch only. With a ``batch_size`` of at least a
    worker's number of rows, a batch is all of them, each once.

    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> time, event = np.exp(-X[:, 0]), np.ones(60)
    >>> cox, rows = desopt.Cox(ridge=0.1), (X, time, event)
    >>> result = desopt.minimize(cox, None, rows, workers=1, rounds=5, step_size=0.3)
    >>> bool(result.x[0] > 0.5)
    True
    """

    ridge: float = 0.0
    lasso: float = 0.0
    ties: Ties = "efron"
    compiled = True
    in_box = True
    #: A value is no mean of values of single rows.
    additive = False

    def __post_init__(self) -> None:
        check_name("ties", self.ties, get_args(Ties))
        for name in ("ridge", "lasso"):
            weight = getattr(self, name)
            if not 0 <= checks.real(name, weight) < np.inf:
                raise ValueError(f"{name} must be a number >= 0, got {weight!r}")

    def settings(self) -> dict[str, Any]:
        return {"name": "cox", "ridge": self.ridge, "lasso": self.lasso, "ties": self.ties}

    def dimension(self, shards: Sequence[Shard]) -> int | None:
        return column_count(shards)

    def prepare(self, shards: Sequence[Shard], *, some: bool = False) -> Sequence[Shard]:
        if isinstance(shards, Loaders):
            return shards  # each is prepared where it is loaded
        if isinstance(shards, Partitioned):
            table = _checked(shards.arrays, "data", {})
            counts = np.add.reduceat(table[2][shards.rows], shards.bounds[:-1])
            for worker in np.flatnonzero(counts == 0)[:1]:
                _refuse_without_events(f"data: worker {worker}")
            return replace(shards, arrays=table, single=False)
        done: dict[int, Any] = {}  # shards of one data set go on sharing their arrays
        prepared: list[Shard] = []
        for shard in shards:
            if isinstance(shard, NoData):
                raise TypeError("data is missing: Cox needs data=(X, time, event)")
            if isinstance(shard, Rows):
                table = _checked(shard.arrays, shard.where, done)
                shard = replace(shard, arrays=table, single=False)
                if not table[2][shard.numbers()].any():
                    _refuse_without_events(shard.where)
            prepared.append(shard)
        return prepared

    def bind(self, batch: Batch, x: FloatArray) -> CoxFunction:
        return CoxFunction(self, batch, x)


class CoxFunction:
    """The penalised likelihood on one batch, or on a fresh one for each iteration."""

    def __init__(self, model: Cox, batch: Batch, x: FloatArray) -> None:
        self._model, self._batch = model, batch.or_all()
        self.rows = self._batch.rows
        self._penalty = float(model.ridge), float(model.lasso)
        self._iteration: int | None = None  # of the batch in _drawn

    def value(self, x: FloatArray, iteration: int = 0) -> float:
        return float(cox_value(*self._data(x, iteration), as_plain(x), *self._penalty))

    def run(self, search: LocalSearch) -> None:
        compiled = _COMPILED.get(type(search))
        if compiled is None or not compiled(self, search):
            drive(search, self.value)

    def _data(self, x: FloatArray, iteration: int = 0) -> tuple[Any, FloatArray, RiskSets]:
        """Layout, ones and risk sets of the batch, for points like x."""
        if iteration != self._iteration:
            self._drawn = self._draw(self._batch.at(iteration))
            self._iteration = iteration
        table, sets = self._drawn
        return table.fits("data", x).layout, table.ones, sets

    def _draw(self, batch: Batch) -> tuple[SurvivalTable, RiskSets]:
        if batch.shard.arrays:
            shard = cast(Rows, batch.shard)
            table, numbers = _table_of(shard.arrays), shard.numbers(batch)
        else:
            (drawn,) = batch.arguments()
            rows = as_rows(drawn, "the batch of draw(rng, b)")
            table, numbers = _checked(rows.arrays, rows.where, {}), rows.numbers()
        return table, table.risk_sets(numbers, self._model.ties == "efron")

    # --- searches in compiled code: True, or False where they must be driven by values -------

    def _in_two_parts(self, search: TwoParts) -> bool:
        while (part := search.part) is not None:
            self.run(part)
            search.proceed()
        return True

    def _one_plus_one(self, search: OnePlusOne) -> bool:
        steps = search.proposals
        if type(steps) is not MixtureProposals or self._batch.fresh or search.evaluations:
            return False
        layout, ones, sets = self._data(search.x)
        if not isinstance(layout, Dense):  # it has no columns
            return False
        v, (_, index, step) = search.x.copy(), next(steps.blocks())
        assert index is not None  # mixtures have coordinates
        box = (
            Box(*np.full((2, v.size), [[-np.inf], [np.inf]])) if search.box is None else search.box
        )
        accepted = np.zeros(search.proposals.count - search.first, np.bool_)
        nans = search_cox(
            layout.values, ones, sets, v, index[search.first :], step[search.first :],
            *self._penalty, box.arrays(), accepted,
        )  # fmt: skip
        if nans == UNSEARCHED:
            return False
        search.finish(accepted, int(nans), point=v)
        return True


#: Compiled searches by the type of the search.
_COMPILED: dict[type[Any], Callable[[CoxFunction, Any], bool]] = {
    OnePlusOne: CoxFunction._one_plus_one,
    TwoParts: CoxFunction._in_two_parts,
}


def concordance(risk: ArrayLike, time: ArrayLike, event: ArrayLike) -> float:
    """Harrell's index: how often, of two patients, the one with the event first had more risk.

    Only pairs count of which it is known who was first. Equal risks count half.
    """
    risk, time, event = (np.asarray(array, float) for array in (risk, time, event))
    if risk.ndim != 1 or not risk.shape == time.shape == event.shape:
        raise ValueError(
            "risk, time and event must be vectors of one length, a number for each patient; got "
            f"shapes {risk.shape}, {time.shape}, {event.shape}"
        )
    for name, array in (("risk", risk), ("time", time), ("event", event)):
        if np.isnan(array).any():
            raise ValueError(f"{name} contains NaN; remove these patients first")
    right = pairs = 0.0
    for i in np.flatnonzero(event):
        later = (time > time[i]) | ((time == time[i]) & (event == 0))
        pairs += np.count_nonzero(later)
        right += np.count_nonzero(risk[later] < risk[i])
        right += 0.5 * np.count_nonzero(risk[later] == risk[i])
    return right / pairs if pairs else float("nan")


def _checked(arrays: tuple[Any, ...], where: str, done: dict[int, Any]) -> SurvivalTable:
    shapes = [array.shape for array in arrays]
    if [len(shape) for shape in shapes] != [2, 1, 1]:
        raise ValueError(
            f"{where}: data for Cox must be (X, time, event): a matrix and two vectors; got "
            f"{len(arrays)} array(s) of shape {', '.join(map(str, shapes))}"
        )
    X, time, event = arrays
    check_matrix(X, where)
    for name, array in (("time", time), ("event", event)):
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{where}: {name} must hold numbers, got dtype {array.dtype}")
    if not np.isfinite(time).all():
        raise ValueError(f"{where}: times must be finite; of a patient who was lost, the last one")
    if not ((event == 0) | (event == 1)).all():
        odd = next(value for value in event.tolist() if value not in (0, 1))
        raise ValueError(f"{where}: events must be 1 (it took place) or 0 (lost), got {odd!r}")
    return SurvivalTable(arrays, where, done)


def _refuse_without_events(where: str) -> NoReturn:
    """To a worker without events all points are equal: it would only add noise."""
    raise ValueError(
        f"{where} has no event in its rows, so its likelihood does not depend on x; leave it out, "
        "or use fewer workers"
    )


def _table_of(arrays: tuple[Any, ...]) -> SurvivalTable:
    if not isinstance(arrays, SurvivalTable):
        raise TypeError("Cox works on shards that went through its prepare() only")
    return arrays
