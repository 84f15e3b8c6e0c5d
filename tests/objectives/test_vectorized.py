"""Functions of a matrix: what they are given, what they may return, what becomes of failures."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.matrices import DATA, START, Floats, N, residual, residuals, squares
from scipy import sparse

import desopt
from desopt.contract.errors import Failed, ObjectiveError
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import Batches
from desopt.data import Batch, Draw, NoData, Rows, as_shards
from desopt.objectives import VectorizedObjective, vectorized
from desopt.objectives.stacking import as_numpy, repeated, stacked


def minimize(fun: Any, data: Any = None, **settings: Any) -> desopt.Result:
    usual: dict[str, Any] = {
        "method": "des-mr", "workers": 3, "rounds": 2, "iterations": 4, "batch_size": 5,
        "progress": False, "vectorized": True, "eval_every": 0,
    }  # fmt: skip
    return desopt.minimize(fun, START, data, **(usual | settings))


def batch_of(shard: Any, worker: int = 0, batches: Batches = Batches.ROUND) -> Batch:
    return Batch(shard, 5, Stream(0, 0, worker, 0, Purpose.BATCH), batches)


def values(objective: VectorizedObjective, functions: list[Any], iterations: Any = None) -> Any:
    points = [START + i for i in range(len(functions))]
    return objective.values(points, functions, iterations or [0] * len(functions))


# --- what fun is given ------------------------------------------------------------------------


def test_each_point_has_the_minibatch_of_its_worker_and_iteration() -> None:
    seen: list[Any] = []

    def fun(X: Floats, batch: Any) -> Any:
        seen.append((X.copy(), batch))
        return residuals(X, batch)

    objective = VectorizedObjective(fun)
    batches = [batch_of(Rows(DATA), worker, Batches.ITERATION) for worker in range(3)]
    functions = [objective.bind(batch, START) for batch in batches]
    found = values(objective, functions, [-1, 2, 1])
    ((X, (A, y)),) = seen
    assert (X.shape, A.shape, y.shape) == ((3, N), (3, 5, N), (3, 5))
    for row, k in enumerate((0, 2, 1)):  # x itself has the minibatch of the first iteration
        ((rows, targets),) = batches[row].at(k).arguments()
        np.testing.assert_array_equal(A[row], rows)
        np.testing.assert_array_equal(y[row], targets)
        assert found[row] == residual(START + row, (rows, targets))
    assert not A.flags.writeable
    values(objective, functions, [-1, 2, 1])
    assert seen[1][1][0] is A  # stacked once, however many calls


def test_batches_of_several_sizes_are_several_calls() -> None:
    shapes: list[Any] = []

    def fun(X: Floats, batch: Any) -> Any:
        shapes.append((X.shape, batch.shape))
        return squares(X) + batch[:, 0, 0]

    objective = VectorizedObjective(fun)
    shards = [Rows((DATA[0][begin : begin + size],), single=True)
              for begin, size in ((0, 9), (9, 8), (17, 9), (26, 3))]  # fmt: skip
    functions = [objective.bind(batch_of(shard, 0, Batches.ALL), START) for shard in shards]
    found = values(objective, functions)
    assert shapes == [((2, N), (2, 9, N)), ((1, N), (1, 8, N)), ((1, N), (1, 3, N))]
    assert found == [
        squares((START + i)[None])[0] + DATA[0][row, 0] for i, row in enumerate((0, 9, 17, 26))
    ]


def test_one_batch_for_all_points_is_not_copied() -> None:
    def fun(X: Floats, batch: Any) -> Any:
        assert batch.shape == (4, 52, N)
        assert batch.strides[0] == 0
        assert np.shares_memory(batch, DATA[0])
        with pytest.raises(ValueError, match="read-only"):
            batch[0, 0, 0] = 1.0
        return squares(X)

    objective = VectorizedObjective(fun)
    f = objective.bind(batch_of(Rows((DATA[0],), single=True), 0, Batches.ALL), START)
    assert len(values(objective, [f] * 4)) == 4


def test_calls_keep_to_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of batches are divided among calls, if possible by the batch that points share."""
    calls: list[Any] = []

    def fun(X: Floats, batch: Any = None) -> Floats:
        calls.append((len(X), batch is not None and batch.strides[0] == 0))
        return squares(X)

    monkeypatch.setattr(vectorized, "CALL_BYTES", 3 * 8 * N * 10)  # three batches, or 30 points
    objective = VectorizedObjective(fun)
    shards = [Rows((DATA[0][i : i + 10],), single=True) for i in (0, 10, 20)]
    whole = [objective.bind(batch_of(shard, 0, Batches.ALL), START) for shard in shards]
    for functions, expected in (
        (whole, [(3, False)]),
        ([f for f in whole for _ in range(5)], [(5, True)] * 3),
        ([f for f in whole[:2] for _ in range(2)], [(2, True)] * 2),
        ([objective.bind(batch_of(NoData()), START)] * 65, [(30, False)] * 2 + [(5, False)]),
    ):
        calls.clear()
        found = values(objective, functions)
        assert calls == expected
        assert found == [*squares(np.array([START + i for i in range(len(functions))]))]


class Sample(NamedTuple):
    a: Any
    b: Any


def test_batches_of_a_sampler_may_be_tuples_and_dicts() -> None:
    def draw(rng: np.random.Generator, b: int) -> Any:
        return {"pair": Sample(rng.random((b, 2)), rng.integers(9, size=b)), "noise": rng.random()}

    seen: list[Any] = []

    def fun(X: Floats, batch: Any) -> Any:
        seen.append(batch)
        return squares(X)

    objective = VectorizedObjective(fun)
    batches = [batch_of(Draw(draw), worker) for worker in range(2)]
    values(objective, [objective.bind(batch, START) for batch in batches])
    expected = [batch.arguments()[0] for batch in batches]
    pair = seen[0]["pair"]
    assert isinstance(pair, Sample)
    assert (pair.a.shape, pair.b.shape, pair.b.dtype.kind) == ((2, 5, 2), (2, 5), "i")
    np.testing.assert_array_equal(pair.a[1], expected[1]["pair"].a)
    np.testing.assert_array_equal(seen[0]["noise"], [batch["noise"] for batch in expected])


def test_x_may_be_kept_and_changed() -> None:
    kept: list[Any] = []
    copies: list[Floats] = []
    addresses: list[int] = []

    def keep(X: Floats) -> Floats:
        kept.append(X[1:])
        copies.append(X[1:].copy())
        return squares(X)

    def change(X: Floats) -> Floats:
        addresses.append(X.ctypes.data)
        found = squares(X)
        X[:] = 7.0
        return found

    result = minimize(keep)
    for view, copied in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(view, copied)
    assert minimize(change).digest == result.digest
    assert len(set(addresses)) < len(addresses) / 2  # else memory is used again


def test_the_conversion_is_applied_to_x_and_batches() -> None:
    given: list[Any] = []

    class Mine:
        """An array of another library, which NumPy does not know."""

        def __init__(self, array: Any) -> None:
            given.append(array)
            self.array = array

    def fun(X: Mine, batch: Any) -> Any:
        A, y = batch
        assert isinstance(A, Mine)
        return residuals(X.array, (A.array, y.array))

    for method in ("des", "es-csa", "fed-zo-sgd"):
        settings: dict[str, Any] = {"method": method, "data": DATA, "eval_every": 1}
        given.clear()
        result = minimize(fun, vectorized=Mine, **settings)
        assert result.digest == minimize(residuals, **settings).digest
        assert all(isinstance(array, np.ndarray) for array in given)


# --- what it returns --------------------------------------------------------------------------


class Device:
    """A tensor on a device, as torch has it: NumPy cannot read it."""

    def __init__(self, array: Floats, steps: str = "") -> None:
        self.array, self.steps, self.dtype = array, steps, array.dtype

    def detach(self) -> Device:
        return Device(self.array, self.steps + "d")

    def cpu(self) -> Device:
        return Device(self.array, self.steps + "c")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Floats:
        if self.steps != "dc":
            raise TypeError("can't convert a tensor on a device that requires grad")
        return self.array


def only_dlpack(array: Floats) -> Any:
    return SimpleNamespace(__dlpack__=array.__dlpack__, __dlpack_device__=array.__dlpack_device__)


class CuPy:
    """Converts on request only."""

    def __init__(self, array: Floats) -> None:
        self.get = array.copy

    def __dlpack__(self) -> None: ...

    def __array__(self) -> None:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


@pytest.mark.parametrize(
    "form", [list, tuple, Device, only_dlpack, CuPy, lambda a: a.astype(np.longdouble)]
)
def test_arrays_of_any_library(form: Callable[[Floats], Any]) -> None:
    assert minimize(lambda X: form(squares(X))).digest == minimize(squares).digest


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda X: squares(X).sum(), ValueError, r"shape \(\); reduce over the last axis only"),
        (lambda X: squares(X)[:, None], ValueError, r"shape \(6,\); it returned ndarray of shape "
                                                     r"\(6, 1\)"),
        (lambda X: squares(X)[:-1], ValueError, r"returned ndarray of shape \(5,\)"),
        (lambda X: None, TypeError, r"one real number for each row of X.* returned NoneType"),
        (lambda X: 1j * squares(X), TypeError, "returned ndarray of type complex128"),
        (lambda X: ["a"] * len(X), TypeError, "returned list of type <U1"),
    ],
)  # fmt: skip
def test_wrong_results(wrong: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        minimize(wrong)


def test_rows_without_a_value_are_failed() -> None:
    def holes(X: Floats) -> Floats:
        return np.where(X[:, 0] > -1.0, np.nan, squares(X))

    def plain(x: Floats) -> float:
        if x[0] > -1.0:
            raise Failed("outside")
        return float(squares(x[None])[0])

    for method in ("des", "es-csa", "fed-zo-sgd"):
        with pytest.warns(RuntimeWarning, match="NaN or infinity|values? failed"):
            found = minimize(holes, method=method)
        with pytest.warns(RuntimeWarning, match="NaN or infinity|values? failed"):
            expected = minimize(plain, method=method, vectorized=False, engine="serial")
        assert found.digest == expected.digest
        assert found.nan_count == expected.nan_count > 0


def test_failed_is_for_all_points_of_a_call() -> None:
    def fun(X: Floats) -> Floats:
        raise Failed("no device")

    with pytest.warns(RuntimeWarning, match="NaN or infinity|values? failed"):
        result = minimize(fun, method="es-csa", population=5, eval_every=1)
    assert result.nan_count == result.nfev == 2 * 3 * 5
    np.testing.assert_array_equal(result.x, START)


def test_exceptions_of_the_users_code() -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("by hand")

    with pytest.raises(ObjectiveError, match=r"fun failed \(round 0\): ZeroDivisionError: by hand"):
        minimize(fails)
    with pytest.raises(ObjectiveError, match=r"fun failed \(worker 0, round 0, iteration 0\)"):
        minimize(fails, method="es-csa", workers=1)
    with pytest.raises(ObjectiveError, match="vectorized failed"):
        minimize(squares, vectorized=fails)
    with pytest.raises(ObjectiveError, match=r"draw failed \(worker 0, round 0"):
        minimize(residuals, lambda rng, b: fails())


# --- settings ---------------------------------------------------------------------------------


def test_setup_comes_last() -> None:
    def fun(X: Floats, batch: Any, scale: float) -> Any:
        return scale * residuals(X, batch)

    made: list[int] = []

    def setup() -> float:
        made.append(1)
        return 4.0

    assert minimize(fun, DATA, setup=setup).digest == minimize(residuals, DATA).digest
    assert made == [1]


@pytest.mark.parametrize("engine", ["threads", "processes", "ray"])
def test_engines_with_other_processes_are_refused(engine: str) -> None:
    with pytest.raises(ValueError, match=f"engine='{engine}' does not go with vectorized"):
        minimize(squares, engine=engine)
    for name in ("round_timeout", "evaluation_timeout"):
        with pytest.raises(ValueError, match=f"{name}=2.0 does not go with vectorized"):
            minimize(squares, **{name: 2.0})


def test_wrong_settings() -> None:
    with pytest.raises(TypeError, match="vectorized must be True, False or a function"):
        minimize(squares, vectorized="torch")
    with pytest.raises(ValueError, match="vectorized is for a Python function"):
        minimize("lr", DATA)
    with pytest.raises(TypeError, match=r"sparse matrix.*pass a dense array"):
        minimize(residuals, (sparse.csr_array(DATA[0]), DATA[1]))
    with pytest.raises(TypeError, match=r"a batch must be an array.*got csr_array in it"):
        minimize(residuals, lambda rng, b: (sparse.csr_array(DATA[0]), DATA[1]))
    with pytest.raises(TypeError, match="got list in it"):
        minimize(residuals, lambda rng, b: [[1.0], [2.0, 3.0]])


def test_objects() -> None:
    """As the argument, with other engines, and pickled."""
    objective = VectorizedObjective(residuals)
    expected = minimize(residuals, DATA)
    assert expected.engine == "matrix"
    for given in (objective, pickle.loads(pickle.dumps(objective)), copy.deepcopy(objective)):
        assert minimize(given, DATA, vectorized=False).digest == expected.digest
        assert minimize(given, DATA).digest == expected.digest
    from desopt.engines.threads import Threads

    assert minimize(objective, DATA, engine=Threads(jobs=2)).digest == expected.digest


def test_stacking_checks_its_forms() -> None:
    shards = as_shards(DATA, 2, 0)
    assert stacked([(1.0, 2), (3.0, 4)], None)[1].tolist() == [2, 4]
    assert repeated((1.0,), 3, None)[0].tolist() == [1.0] * 3
    assert as_numpy([1, 2]).tolist() == [1, 2]
    assert VectorizedObjective(squares).prepare(shards) is shards


# --- real libraries ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["des", "es-csa", "fed-zo-sgd"])
def test_torch(method: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def fun(X: Any, batch: Any) -> Any:
        assert isinstance(X, torch.Tensor)
        assert isinstance(batch[0], torch.Tensor)
        scale = torch.ones((), dtype=X.dtype, requires_grad=True)
        return scale * residuals(X, batch)

    expected = minimize(residuals, DATA, method=method, eval_every=1)
    for convert in (torch.from_numpy, torch.as_tensor, lambda a: torch.as_tensor(a, device="cpu")):
        found = minimize(fun, DATA, vectorized=convert, method=method, eval_every=1)
        assert (found.digest, found.fun) == (expected.digest, expected.fun)
    half = as_numpy(torch.ones(3, dtype=torch.bfloat16, requires_grad=True))
    assert half.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.filterwarnings("ignore:a value of fun depends")
@pytest.mark.parametrize("method", ["des", "es-csa", "fed-zo-sgd"])
def test_jax(method: str) -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    data = tuple(array[:48] for array in DATA)  # JAX divides correctly by powers of 2 only
    usual: dict[str, Any] = {"data": data, "batch_size": 4, "method": method, "eval_every": 1}
    settings = usual | {"vectorized": jax.numpy.asarray}

    def one(x: Any, batch: Any) -> Any:
        A, y = batch
        return jax.numpy.mean((A @ x - y) ** 2)

    with jax.enable_x64(True):
        found = minimize(residuals, **settings)
        fused = minimize(jax.jit(jax.vmap(one)), **settings)
    expected = minimize(residuals, **usual)
    assert (found.digest, found.fun) == (expected.digest, expected.fun)
    assert fused.initial_fun == pytest.approx(expected.initial_fun, rel=1e-12)
    single = minimize(jax.jit(jax.vmap(one)), **settings)
    assert single.initial_fun == pytest.approx(expected.initial_fun, rel=1e-5)
    assert as_numpy(jax.numpy.ones(2, jax.numpy.bfloat16)).astype(float).tolist() == [1.0, 1.0]
