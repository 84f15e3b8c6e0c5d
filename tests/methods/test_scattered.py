"""States whose vectors are scattered have the bits of those with arrays."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import desopt
from desopt.contract import codec
from desopt.contract.scattered import PIECE, Scattered, pieces_of
from desopt.contract.types import Answer, Task
from desopt.methods.des import DES, _scattered
from desopt.methods.samplers import Gaussian, MixtureGaussian, MixtureRademacher
from desopt.methods.searches import OnePlusOne

N = 3 * PIECE + 21  # several pieces, and numbers after the last group of lanes


def arrays(state: Any) -> list[Any]:
    return [v if np.isscalar(v) else np.asarray(v).tobytes() for v in vars(state).values()]


@pytest.mark.parametrize(
    "method",
    [
        DES(iterations=40, step_size=0.3),
        DES(iterations=40, step_size="auto"),
        DES(iterations=80, step_size="auto", sampler=MixtureGaussian(64), momentum=0.0),
    ],
    ids=["rademacher", "auto", "gaussian"],
)
@pytest.mark.parametrize("n", [N, 19])
def test_merges_have_the_bits_of_arrays(method: DES, n: int) -> None:
    """From bare bits, as a replay has them, and from the changes that a search hands over."""
    rng = np.random.default_rng(1)
    dense, scattered = method.init(np.zeros(n)), method.init(Scattered(n))  # type: ignore[arg-type]
    size = method.layout.size
    for _ in range(6):
        answers = [Answer(worker, rng.bytes(size)) for worker in (0, 2, 3)]
        dense = method.merge(dense, answers)
        proposals = method._proposals(scattered, n)
        answers[1] = replace(answers[1], change=method._change(scattered.x, proposals, answers[1]))
        scattered = method.merge(scattered, answers)
        assert isinstance(scattered.x, Scattered)
        assert arrays(scattered) == arrays(dense)
        assert codec.digest_of(scattered.x) == codec.digest_of(dense.x)
    assert arrays(method.merge(scattered, [])) == arrays(method.merge(dense, []))
    # as bytes, and back
    packed = codec.pack_state(scattered)
    assert packed == codec.pack_state(dense)
    assert codec.state_bytes(scattered) == codec.state_bytes(dense)
    again = codec.unpack_state(packed, scattered)
    assert arrays(again) == arrays(dense)
    assert type(again.x) is Scattered
    for field in fields(again):
        vector = getattr(again, field.name)
        if isinstance(vector, Scattered):
            assert vector.columns.size < n or n < 100


def test_only_sparse_steps_are_scattered() -> None:
    assert DES(sampler=MixtureRademacher(3)).scatters
    assert not DES(sampler=Gaussian()).scatters
    assert not DES(aggregate="median").scatters
    assert not DES(float32=True).scatters


def test_a_scattered_vector_is_that_array() -> None:
    whole = np.zeros(N)
    whole[[0, 5, PIECE, N - 1]] = -0.0, 2.0, 3.0, np.inf
    x = Scattered.of(pieces_of(whole))
    assert np.asarray(x).tobytes() == whole.tobytes()
    assert x.columns.tolist() == [0, 5, PIECE, N - 1]
    index = np.array([N - 1, 4, 5, 5, N - 2])
    np.testing.assert_array_equal(x[index], whole[index])
    y = x.copy()
    y.put(np.array([5, 3]), np.array([7.0, 8.0]))
    assert (y[np.array([3, 5])].tolist(), x[np.array([3, 5])].tolist()) == ([8.0, 7.0], [0.0, 2.0])
    assert b"".join(p.tobytes() for p in y.pieces()) == np.asarray(y).tobytes()


def test_a_negative_zero_is_kept_in_a_merge() -> None:
    kept = _scattered(9, np.array([1, 4, 7]), np.array([-0.0, 0.0, 1.0]))
    assert (kept.columns.tolist(), str(kept.values[0])) == ([1, 7], "-0.0")


def test_runs_resume_and_results_are_arrays(tmp_path: Path) -> None:
    """A run from scattered zeros, which only the serial engine has, ends like any other."""

    class Bowl:
        """sum (x - 1)^2 at the first 30 coordinates."""

        compiled = False

        def settings(self) -> dict[str, Any]:
            return {"name": "bowl"}

        def prepare(self, shards: Any, *, some: bool = False) -> Any:
            return shards

        def dimension(self, shards: Any) -> None:
            return None

        def bind(self, batch: Any, x: Any) -> "Bowl":
            return self

        rows = 1

        def value(self, x: Any, iteration: int = 0) -> float:
            return float(((np.asarray(x)[:30] - 1) ** 2).sum())

        def run(self, search: Any) -> None:
            """By points of their own: those of a search need arrays."""
            dense = replace_x(search, np.asarray(search.x))
            while points := dense.ask():
                dense.tell([self.value(points[0])])
            search.finish(dense.accepted, dense.nans)

    settings: dict[str, Any] = {
        "method": "des-mr", "engine": "serial", "log_values": False, "workers": 2,
        "iterations": 20, "step_size": 0.1, "progress": False,
    }  # fmt: skip
    expected = desopt.minimize(Bowl(), np.zeros(40), rounds=4, **settings)
    journal = tmp_path / "run.journal"
    desopt.minimize(Bowl(), Scattered(40), rounds=2, journal=journal, **settings)
    found = desopt.minimize(Bowl(), Scattered(40), rounds=4, journal=journal, **settings)
    assert type(found.get("x")) is Scattered
    assert found.digest == expected.digest
    assert type(found.x) is np.ndarray
    assert found.best_x.tobytes() == expected.best_x.tobytes()
    assert desopt.replay(journal).tobytes() == expected.x.tobytes()


def replace_x(search: Any, x: Any) -> Any:
    return OnePlusOne(
        Task(search.round, x), search.worker, search.proposals, layout=search._layout,
        batches=search.batches, dense=False,
    )  # fmt: skip
