"""Whatever workers send, x stays finite, and whoever sends nonsense counts as not there."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import desopt
from desopt import METHODS
from desopt.contract.types import Answer
from desopt.data import as_shards
from desopt.engines import Job
from desopt.methods.aggregation import AGGREGATES
from desopt.methods.samplers import Key
from desopt.objectives import LinearModel

N, WORKERS = 7, 10
_RNG = np.random.default_rng(1)
_X = _RNG.standard_normal((60, N))
DATA = (_X, np.sign(_X @ _RNG.standard_normal(N)))
HUGE = float(np.finfo(np.float64).max)
AVERAGING = [name for name, method in METHODS.items() if method.aggregates]
CASES = [
    (name, how) for name in METHODS for how in AGGREGATES if how == "mean" or name in AVERAGING
]
SCALARS = [name for name, method in METHODS.items() if method.answer.endswith("numbers")]


def make(name: str, aggregate: str = "mean", **changes: Any) -> Any:
    usual = {"iterations": 6, "seed": 3, "mixture": 4, "population": 5, "aggregate": aggregate}
    return METHODS[name].make(name, usual | changes)


def assert_finite(state: Any) -> None:
    for field in fields(state):
        assert np.isfinite(getattr(state, field.name)).all(), (field.name, state)


def same(one: Any, other: Any) -> bool:
    return all(
        np.asarray(getattr(one, f.name)).tobytes() == np.asarray(getattr(other, f.name)).tobytes()
        for f in fields(one)
    )


numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, HUGE, -HUGE, 1e308, -1e308, 1e300, 5e-324]),
    st.floats(allow_nan=False, allow_infinity=False),
)
singles = st.floats(allow_nan=False, allow_infinity=False, width=32)


@pytest.mark.parametrize(("name", "aggregate"), CASES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), step_size=st.sampled_from([1e-3, 1.0, 1e150, 1e300, 1e307]))
def test_no_merge_leaves_the_finite_numbers(
    name: str, aggregate: str, data: st.DataObject, step_size: float
) -> None:
    algorithm = make(name, aggregate, step_size=step_size)
    layout = algorithm.layout
    scalars = numbers | st.just(np.inf) if layout.missing else numbers
    state = algorithm.init(np.array(data.draw(st.lists(numbers, min_size=N, max_size=N))))
    for _ in range(3):
        count = data.draw(st.integers(0, 1 if METHODS[name].single_worker else 4))
        answers = []
        for worker in range(count):
            if layout.bits:
                packed = data.draw(st.integers(0, 2**layout.bits - 1))
                payload = packed.to_bytes(-(-layout.bits // 8), "little")
                payload += np.float32(data.draw(singles)).tobytes() * layout.float32
            else:
                lists = st.lists(scalars, min_size=layout.float64, max_size=layout.float64)
                payload = layout.encode(float64=data.draw(lists))
            answers.append(Answer(worker, payload))
            layout.decode(answers[-1])
        state = algorithm.merge(state, answers)
        assert_finite(state)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", SCALARS)
def test_scalars_that_are_not_finite_are_refused(name: str, value: float) -> None:
    """But for +inf where the layout allows missing values: a member of es-csa without one."""
    algorithm = make(name)
    scalars = np.ones(algorithm.layout.float64)
    scalars[1] = value
    answer = Answer(4, algorithm.layout.encode(float64=scalars))
    if algorithm.layout.missing and value == np.inf:
        algorithm.layout.decode(answer)
        return
    with pytest.raises(ValueError, match=r"worker 4 has an? (NaN|infinite) scalar"):
        algorithm.layout.decode(answer)
    with pytest.raises(ValueError, match=r"worker 4 has an? (NaN|infinite) scalar"):
        algorithm.merge(algorithm.init(np.zeros(N)), [answer])


def answered(name: str, aggregate: str = "mean") -> tuple[Any, Any, list[Answer]]:
    """An algorithm, its state, and ten honest answers."""
    algorithm, model = make(name, aggregate, step_size=4.0), LinearModel("lr")
    job = Job(algorithm, model, model.prepare(as_shards(DATA, WORKERS, 3)), 8, 3, N)
    state = algorithm.init(np.zeros(N))
    return algorithm, state, [job.work(algorithm.plan(state), w) for w in range(WORKERS)]


def test_a_vote_is_a_vote_whatever_was_sent() -> None:
    """Slopes that add up to no number abstain there; nobody's voice but the liar's is lost."""
    n, algorithm = 400, make("zo-signsgd")
    state = algorithm.init(np.zeros(n))
    draw = np.random.default_rng(2)
    honest = [Answer(w, algorithm.layout.encode(float64=draw.standard_normal(3))) for w in range(9)]
    liar = Answer(9, algorithm.layout.encode(float64=np.array([HUGE, -HUGE, HUGE])))
    votes = [-algorithm.merge(state, [answer]).x for answer in (*honest, liar)]
    assert all(set(vote) <= {-1.0, 0.0, 1.0} for vote in votes)
    abstained = votes[-1] == 0
    assert 10 < abstained.sum() < 200
    merged = algorithm.merge(state, [*honest, liar])
    assert (merged.x == -np.sign(sum(votes))).all()
    assert (merged.x == algorithm.merge(state, honest).x)[abstained].all()


@pytest.mark.parametrize("slope", [1e308, -1e308, HUGE])
def test_one_vote_of_ten_is_one_vote(slope: float) -> None:
    """The sums of ten honest votes decide; one liar changes each by two at most."""
    algorithm, state, answers = answered("zo-signsgd")
    votes: Any = sum(np.sign(np.asarray(answer.point)) for answer in answers)
    liar = Answer(9, algorithm.layout.encode(float64=np.array([slope, -slope, slope])))
    merged = algorithm.merge(state, [*answers[:-1], liar])
    clear = np.abs(votes) > 2
    assert clear.sum() >= 3
    assert (merged.x[clear] == algorithm.merge(state, answers).x[clear]).all()
    assert set(np.abs(merged.x)) <= {0.0, algorithm.step_size}


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("name", ["fed-zo-gd", "fed-zo-sgd"])
def test_a_displacement_that_is_not_finite_is_left_out(name: str, aggregate: str) -> None:
    algorithm, state, answers = answered(name, aggregate)
    liar = Answer(9, algorithm.layout.encode(float64=np.array([HUGE, HUGE, -HUGE])))
    merged = algorithm.merge(state, [*answers[:-1], liar])
    assert same(merged, algorithm.merge(state, answers[:-1]))
    assert not same(merged, algorithm.merge(state, answers))
    v = np.full(N, 1.0)
    v[3] = np.nan  # as an engine in memory would hand it over
    assert same(algorithm.merge(state, [*answers[:-1], replace(liar, point=v)]), merged)
    assert same(algorithm.merge(state, [liar]), replace(state, round=1))


def test_a_member_that_nobody_can_add_up_ranks_last() -> None:
    algorithm = make("es-csa", population=4)
    state = algorithm.init(np.zeros(N))

    def merged(*sums: list[float]) -> Any:
        answers = [
            Answer(w, algorithm.layout.encode(float64=np.array(each)))
            for w, each in enumerate(sums)
        ]
        return algorithm.merge(state, answers)

    expected = merged([np.inf, 1.0, 2.0, 3.0])
    assert same(merged([-HUGE, 0.5, 1.0, 2.0], [-HUGE, 0.5, 1.0, 1.0]), expected)
    assert same(merged([HUGE, 0.5, 1.0, 2.0], [HUGE, 0.5, 1.0, 1.0]), expected)
    assert same(merged([np.inf, 0.5, 1.0, 2.0], [-HUGE, 0.5, 1.0, 1.0]), expected)


def test_a_step_size_stays_a_number() -> None:
    """es-csa's sigma grows while its path is long."""
    algorithm = make("es-csa")
    state = replace(algorithm.init(np.zeros(N)), sigma=HUGE, path=np.full(N, 100.0))
    merged = algorithm.merge(state, [Answer(0, algorithm.layout.encode(float64=np.arange(5.0)))])
    assert merged.sigma == HUGE
    assert_finite(merged)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("engine", ["serial", "threads"])
@pytest.mark.parametrize("name", METHODS)
def test_an_honest_run_that_overflows_is_the_same_everywhere(
    name: str, engine: str, tmp_path: Any
) -> None:
    """Steps beyond all numbers: what is handed over in memory and a replay agree."""
    path = tmp_path / "run.journal"
    found = desopt.minimize(
        "lr", np.full(N, 1e307), DATA, method=name, step_size=1e307, rounds=6, iterations=6,
        workers=1 if METHODS[name].single_worker else 4, batch_size=5, engine=engine, journal=path,
        population=5, momentum=0.0, progress=False, eval_every=0,
    )  # fmt: skip
    assert np.isfinite(found.x).all()
    assert desopt.replay(path).tobytes() == found.x.tobytes()


def test_many_draws_are_rebuilt_a_few_answers_at_a_time() -> None:
    """A server that asks for many iterations costs a replica bounded memory; same bits."""
    algorithm = make("des-mr", iterations=4000, mixture=16)
    bits = np.random.default_rng(0).random((70, 4000)) < 0.5
    answers = [Answer(w, np.packbits(b, bitorder="little").tobytes()) for w, b in enumerate(bits)]
    state = algorithm.init(np.zeros(N))
    merged = algorithm.merge(state, answers)
    one_by_one = np.zeros(N)
    for worker, accepted in enumerate(bits):
        v = state.x.copy()
        key = Key(algorithm.seed, 0, worker)
        algorithm.sampler.replay(v, algorithm.step_sizes(0), accepted, key)
        one_by_one += v - state.x
    assert (merged.m == 0.5 * (one_by_one / 70)).all()
