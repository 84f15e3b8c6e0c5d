"""The study of the step size: its cases, and the verdicts on results."""

from dataclasses import replace

import numpy as np
import pytest

from desopt.report import stepsize as report
from desopt.studies import stepsize
from desopt.studies.problems import resolved


def test_scaled_problems_are_the_problems_as_they_were() -> None:
    """Data times s and variables times 1/s have the same values."""
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((20, 6)), np.where(rng.random(20) < 0.5, -1.0, 1.0)
    x = rng.standard_normal(6)
    for case in stepsize.items("full")["scales"]:
        problem, how = stepsize.base_of(case.problem)
        if how in ("up", "down") and problem in ("lr", "nsvm", "lsvm"):
            scale = stepsize.UP if how == "up" else stepsize.DOWN
            (loss,) = {
                "lr": [np.mean(np.log1p(np.exp(-batch[1] * (batch[0] @ x))))],
                "nsvm": [np.mean(1 - np.tanh(batch[1] * (batch[0] @ x)))],
                "lsvm": [np.mean(np.maximum(0, 1 - batch[1] * (batch[0] @ x)))],
            }[problem]
            expected = loss + 0.5e-6 * np.sum(x**2)
            assert resolved(case.problem)(x / scale, batch) == pytest.approx(expected, rel=1e-12)


def test_regret_and_verdicts() -> None:
    fixed = {0.01: 0.9, 0.1: 0.5, 1.0: 0.2, 10.0: 0.6, 100.0: 1.0}
    setting = ("lr", "a9a", "des", 10, 100, 50)
    run = report.Run(setting, 1, 1.0, fixed, 0.236, {"up": 0.2, "times": 2.0**20 * 0.236})
    assert run.own == pytest.approx(0.045)
    assert (run.best_step, run.trapped) == (1.0, False)
    few = replace(run, setting=(*setting[:3], 2, 100, 50))
    good = [claim.verdict for claim in report.claims([run, few])]
    assert good == ["holds", "does not hold", *["holds"] * 5]  # the mean is 4.5 %
    bad = replace(run, auto=0.7, scaled={"up": 0.3, "times": 0.1})
    assert [claim.verdict for claim in report.claims([bad])] == [
        *["does not hold"] * 6, "not enough data",
    ]  # fmt: skip


def test_a_gain_too_small_to_show_has_no_sign() -> None:
    fixed = {0.01: 0.9, 0.1: 0.5, 1.0: 0.2, 10.0: 0.6, 100.0: 1.0}
    run = report.Run(("lr", "a9a", "des", 10, 100, 50), 1, 1.0, fixed, 0.2 - 1e-6, {})
    assert report.table([run]).rows[0][-1] == "0.0"
