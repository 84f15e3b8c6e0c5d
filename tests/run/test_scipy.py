"""SciPy's side: the result, the callbacks, and ``scipy.optimize.minimize`` with our methods."""

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult

import desopt

Floats = NDArray[np.float64]

SMALL: dict[str, Any] = {
    "workers": 2, "rounds": 3, "iterations": 4, "engine": "serial", "progress": False,
}  # fmt: skip
START = np.array([1.0, -2.0, 3.0])


def square(x: Floats) -> float:
    return float(x @ x)


def run(x0: Any = START, **settings: Any) -> desopt.Result:
    return desopt.minimize(square, x0, **SMALL | settings)


# --- the result ------------------------------------------------------------------------------


def test_result_is_scipys() -> None:
    result = run()
    assert isinstance(result, OptimizeResult)
    assert set(result) == set(desopt.Result.__annotations__)
    for name, value in result.items():
        assert getattr(result, name) is value
    with pytest.raises(AttributeError, match="jac"):
        _ = result.jac
    assert {*result, "digest"} == set(dir(result))


def test_result_is_copied_and_pickled() -> None:
    result = run()
    for other in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert type(other) is desopt.Result
        assert other.digest == result.digest
        assert repr(other) == repr(result)
        np.testing.assert_array_equal(other.history["loss"], result.history["loss"])
    assert copy.deepcopy(result).x is not result.x is copy.copy(result).x


def test_result_is_short_in_print() -> None:
    lines = repr(run(np.ones(10_000), rounds=30)).splitlines()
    assert len(lines) < 20
    assert all(len(line) < 150 for line in lines)
    assert lines[0].strip().startswith("message: 30 rounds done (")
    shown = [line.split(":")[0].strip() for line in lines]
    assert shown[1:6] == ["success", "status", "fun", "x", "nit"]
    assert {"best_fun", "engine", "nan_count"} <= set(shown)
    assert not {"history", "best_x"} & set(shown)


def test_scipy_optimize_is_loaded_with_the_first_result() -> None:
    code = (
        "import sys, desopt, desopt.run.minimize, desopt.run.folder\n"
        "seen = []\n"
        "def fun(x):\n"
        "    seen.append('scipy.optimize' in sys.modules)\n"
        "    return 0.0\n"
        "desopt.minimize(fun, [1.0], workers=1, rounds=1, iterations=1, engine='serial')\n"
        "print(any(seen), 'scipy.optimize' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900
    )
    assert done.stdout.strip() == "False True"
