"""Performance profiles beside a table made by hand and beside the package perfprof."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desopt.report import profiles

INF = math.inf

# Four instances, three solvers; what is not solved costs infinity.
COSTS = np.array([[2.0, 4.0, INF], [3.0, 3.0, 9.0], [INF, 5.0, 10.0], [INF, INF, INF]])


def test_a_table_computed_by_hand() -> None:
    ratios = profiles.cost_ratios(COSTS)
    assert ratios.tolist() == [[1, 2, INF], [1, 1, 3], [INF, 1, 2], [INF, INF, INF]]
    stairs = [tuple(map(np.ndarray.tolist, profiles.staircase(r))) for r in ratios.T]
    assert stairs == [([1], [0.5]), ([1, 2], [0.5, 0.75]), ([2, 3], [0.25, 0.5])]
    assert [profiles.share(ratios[:, 1], tau) for tau in (0.99, 1, 1.99, 2, 100)] == [
        0, 0.5, 0.5, 0.75, 0.75,
    ]  # fmt: skip


def test_solved_at_the_first_point_that_is_low_enough() -> None:
    # f(x0) = 10 and f* = 0: delta 0.1 asks for 1 or less, reached at costs 4 and 6.
    fast = (np.array([0.0, 2.0, 4.0, 6.0]), np.array([10.0, 5.0, 1.0, 0.5]))
    best = (np.array([0.0, 3.0, 6.0]), np.array([10.0, 2.0, 0.0]))
    lost = (np.array([0.0, 3.0, 6.0]), np.array([10.0, math.nan, 1.0001]))
    assert profiles.instance_costs([fast, best, lost], 0.1).tolist() == [4, 6, INF]
    assert profiles.instance_costs([fast, best, lost], 0.01).tolist() == [INF, 6, INF]
    assert profiles.instance_costs([fast, best, lost], 0.5).tolist() == [2, 3, 6]


def test_going_up_again_does_not_undo_it_and_no_progress_solves_nothing() -> None:
    cost = np.arange(3.0)
    assert profiles.instance_costs([(cost, np.array([1.0, 0.0, 9.0]))], 0.1).tolist() == [1]
    assert profiles.instance_costs([(cost, np.array([1.0, 1.0, 2.0]))], 0.1).tolist() == [INF]
    with pytest.raises(ValueError, match="between 0 and 1"):
        profiles.instance_costs([(cost, cost)], 1.0)


def test_score_is_the_area_under_the_profile_over_log_tau() -> None:
    ratio = np.array([1.0, 2.0, 5.0, 20.0, INF])
    grid = np.exp(np.linspace(0, np.log(10), 200_001))
    area = np.mean([profiles.share(ratio, tau) for tau in grid[::200]])
    assert profiles.score(ratio, 10) == pytest.approx(area, abs=1e-3)
    assert profiles.score(np.ones(3), 10) == 1
    assert profiles.score(np.full(3, INF), 10) == 0


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.lists(st.one_of(st.integers(1, 60), st.just(INF)), min_size=3, max_size=3),
        min_size=1,
        max_size=8,
    )
)
def test_the_same_as_perfprof(rows: list[list[float]]) -> None:
    """perfprof is D. Steck's translation of the Highams' MATLAB function; it draws the steps."""
    theirs = pytest.importorskip("perfprof", reason="perfprof is not installed")
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    costs = np.array([[7.0, 7.0, 7.0], *rows])  # it wants something solved
    _, lines = theirs.perfprof(costs, ["-", "-", "-"])
    for ratio, line in zip(profiles.cost_ratios(costs).T, lines, strict=True):
        tau, rho = line[0].get_data()
        assert [profiles.share(ratio, t * (1 + 1e-12)) for t in tau] == pytest.approx(rho.tolist())
    plt.close("all")
