"""The contract of an objective: ``contract.types.Objective``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Batches, FloatArray, Objective
from desopt.data import Batch, OpenShard, Rows, as_shards
from desopt.methods.des import DES
from desopt.methods.es_csa import ESCSA
from desopt.methods.fed_zo import FedZOGD, FedZOSGD
from desopt.methods.samplers import SAMPLERS, CustomSampler
from desopt.methods.zo_signsgd import ZOSignSGD
from desopt.plugins import OBJECTIVE_MEMBERS
from desopt.testing.claims import SEED, Claims, bits, dialogue, read_only, sent

#: Rows for which the mean is compared with the values of single rows.
_FEW = 50

#: Two sums of the same numbers in another order differ by less: 1e3 roundings of 1.1e-16.
_ROUNDING = 1e-12

_STREAM = Stream(SEED, 0, 0, 0, Purpose.BATCH)

_RADIUS = 1e-3


def check_objective(objective: Objective, data: Any, x: ArrayLike) -> None:
    """Raise an AssertionError where an objective breaks its contract.

    ``data`` is as for ``minimize`` (None: no data), ``x`` a point at which values are finite. An
    objective whose values are not means over rows, such as a ratio, says ``additive = False``.

    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> time, event = np.exp(-X[:, 0]), np.ones(60)
    >>> desopt.testing.check_objective(desopt.Cox(), (X, time, event), np.zeros(3))
    """
    claim = Claims(f"objective {type(objective).__name__}")
    claim.has(objective, *OBJECTIVE_MEMBERS)
    settings = claim.plain_settings(objective)
    at = read_only(np.asarray(x, np.float64))
    shard = _prepared(claim, objective, data, at)
    _check_values(claim, objective, shard, at)
    if isinstance(shard, Rows) and getattr(objective, "additive", True):
        _check_means(claim, objective, shard, at)
    for name, method in _methods().items():
        for size in (1, 7):
            batches = method.search(method.plan(method.init(at)), 0).batches
            _check_search(claim, objective, Batch(shard, size, _STREAM, batches), name, method, at)
    copy = claim.pickles(objective)
    value = _value(copy, shard, at)
    claim(
        copy.settings() == settings and bits(value) == bits(_value(objective, shard, at)),
        "a pickled copy has the same settings and values",
        f"Its settings are {copy.settings()}, its value is {value!r}",
    )


def _prepared(claim: Claims, objective: Objective, data: Any, x: FloatArray) -> OpenShard:
    """The first worker's data, as an engine opens them."""
    given = as_shards(data, 1, SEED)
    shards = objective.prepare(given)
    claim(
        len(shards) == len(given),
        "prepare gives as many shards as it is given",
        f"{len(given)} went in, {len(shards)} came out",
    )
    shard: OpenShard = shards[0].open(objective, 0)
    n = objective.dimension([shard])
    claim(
        n in (None, x.size),
        "dimension is the size of x, or None where the data do not decide it",
        f"It is {n!r} for a point of {x.size} numbers",
    )
    return shard


def _value(
    objective: Objective, shard: OpenShard, x: FloatArray, batches: Batches = Batches.ALL
) -> float:
    return objective.bind(Batch(shard, 7, _STREAM, batches), x).value(x)


def _check_values(claim: Claims, objective: Objective, shard: OpenShard, x: FloatArray) -> None:
    for batches in Batches:
        batch, before = Batch(shard, 7, _STREAM, batches), bits(x)
        f = objective.bind(batch, x)
        claim.has(f, "rows", "value", "run")
        claim(
            f.rows == batch.rows,
            "rows is the number of samples of a value",
            f"It is {f.rows}, the batch has {batch.rows}",
        )
        value = f.value(x)
        claim(
            isinstance(value, float) and math.isfinite(value),
            "a value is a finite float at the x of this check",
            f"With {batches.value} it is {value!r}",
        )
        claim(bits(x) == before, "value leaves x alone", "It wrote to x")
        f.value(read_only(x + 1.0))
        for other in (f, objective.bind(batch, x)):
            claim(
                bits(other.value(x)) == bits(value),
                "value is a function of x and the batch",
                f"With {batches.value} it is {value!r}, then {other.value(x)!r}",
            )


def _check_means(claim: Claims, objective: Objective, shard: Rows, x: FloatArray) -> None:
    """A value is the mean of F over its rows: all of them, or those of a minibatch."""
    numbers = shard.numbers()[:_FEW]
    single = {int(i): _value(objective, _with(shard, [i]), x) for i in numbers}
    few = _with(shard, numbers)
    for iteration in (0, 1):
        batch = Batch(few, 7, _STREAM, Batches.ITERATION)
        cases = {"all rows": (Batch(few, 7, _STREAM, Batches.ALL), few.numbers()),
                 "a minibatch": (batch, few.numbers(batch.at(iteration)))}  # fmt: skip
        for what, (each, rows) in cases.items():
            value = objective.bind(each, x).value(x, iteration)
            values = [single[int(i)] for i in rows]
            mean, scale = math.fsum(values) / len(values), max(map(abs, values))
            claim(
                abs(value - mean) <= _ROUNDING * scale,
                "a value is the mean of F over the rows of the batch",
                f"Over {what} of {len(values)} rows it is {value!r}, the mean of their values "
                f"{mean!r}",
            )


def _with(shard: Rows, rows: Any) -> Rows:
    return replace(shard, rows=np.asarray(rows, np.int64))


def _methods() -> dict[str, Any]:
    """A method for every kind of search."""
    usual: dict[str, Any] = {"iterations": 20, "step_size": 0.3}
    samplers = {name: make() for name, make in SAMPLERS.items()}
    samplers["VectorProposals"] = CustomSampler(lambda rng, n: rng.standard_normal(n))
    return {
        **{f"OnePlusOne, {name}": DES(sampler=each, **usual) for name, each in samplers.items()},
        "TwoPoint, moving": FedZOGD(radius=_RADIUS, **usual),
        "TwoPoint, moving, new minibatches": FedZOSGD(radius=_RADIUS, **usual),
        "TwoPoint, new minibatches": ZOSignSGD(radius=_RADIUS, **usual),
        "Population": ESCSA(population=9),
    }


def _check_search(
    claim: Claims, objective: Objective, batch: Batch, name: str, method: Any, x: FloatArray
) -> None:
    """``run`` ends a search with the answer that single values give."""
    task = method.plan(method.init(x))
    f, g = objective.bind(batch, x), objective.bind(batch, x)
    search, twin = method.search(task, 0), method.search(task, 0)
    f.run(search)
    dialogue(claim, twin, g.value, 1)
    one, other = search.answer(f.rows), twin.answer(g.rows)
    ran, told = method.layout.decode(one), method.layout.decode(other)
    same = sent(replace(one, payload=b"")) == sent(replace(other, payload=b""))
    claim(
        same and bits(ran.bits) == bits(told.bits),
        "run gives the accept bits and counts that ask and tell with single values give",
        f"{name}, {batch.size} rows: run gives {one!r:.160}, values {other!r:.160}",
    )
    if objective.compiled:  # sums in another order; a slope is a difference over 2 * _RADIUS
        far = _ROUNDING / _RADIUS * np.abs(told.float64[np.isfinite(told.float64)]).max(initial=1.0)
    else:
        far = 0.0
    claim(
        np.allclose(ran.float64, told.float64, rtol=0.0, atol=far),
        "run gives the numbers that ask and tell with single values give: in every bit, and "
        "within rounding where the objective is compiled",
        f"{name}, {batch.size} rows: run gives {ran.float64}, values {told.float64}",
    )
