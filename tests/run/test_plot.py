"""The plot of a result: what is drawn, on which scale, and what is not drawn."""

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt

pyplot = pytest.importorskip("matplotlib.pyplot")

Floats = NDArray[np.float64]


class Evaluation(NamedTuple):
    id: str
    x: Floats | None
    value: float | None
    seconds: float = 0.05
    worker: int = 0
    round: int = 0
    rows: int = 1
    failed: bool = False
    reason: str = ""
    objective: bool = False


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def records(values: Any, n: int | None = 3) -> list[Evaluation]:
    """With NaN for a failure, and points that get nearer to 1."""
    draws = np.random.default_rng(0).standard_normal((len(values), n or 1))
    made = []
    for place, value in enumerate(values):
        x = None if n is None else 1.0 + draws[place] / (1 + place)
        failed = math.isnan(value)
        made.append(Evaluation(str(place), x, None if failed else value, failed=failed))
    return made


def run(fun: Callable[..., float] = lambda x: float(x @ x), data: Any = None) -> desopt.Result:
    return desopt.minimize(
        fun, np.full(3, 2.0), data, method="es" if data is None else "des", workers=2, rounds=4,
        iterations=6, batch_size=5, engine="serial", eval_every=2, progress=False,
    )  # fmt: skip


def logged(values: Any, n: int | None = 3) -> Any:
    result: Any = run()
    result.evaluations = records(values, n)
    return result


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


def coordinates(axes: Any) -> list[Floats]:
    """The lines of parallel coordinates, worst first."""
    return [path.vertices for path in axes.collections[0].get_paths()]


def test_rounds_alone() -> None:
    result = run()
    axes: Any = result.plot().axes[0]
    (line,) = axes.get_lines()
    assert list(line.get_xdata()) == [0, *result.history["evaluations"][1::2]]
    assert list(line.get_ydata()) == [result.initial_fun, *result.history["loss"][1::2]]
    assert axes.get_xlabel() == "function values computed"


def test_single_values_and_failures() -> None:
    values = [9.0, 4.0, np.nan, 5.0, np.inf, 3.0]
    shown = lines(logged(values).plot().axes[0])
    assert list(shown) == [
        "single values", "best so far", "objective after a round", "failed (2)",
    ]  # fmt: skip
    assert list(shown["best so far"].get_ydata()) == [9.0, 4.0, 4.0, 4.0, 4.0, 3.0]
    assert list(shown["best so far"].get_xdata()) == [1, 2, 3, 4, 5, 6]
    assert list(shown["failed (2)"].get_xdata()) == [3, 5]


def test_rounds_are_placed_among_the_values() -> None:
    """Also with values ahead, and with those of the objective."""
    result = logged([9.0] * 10)
    rounds = [(0, True), (0, False), (0, False), (0, False), (1, False), (2, True), (2, False),
              (3, False), (4, True), (4, False)]  # fmt: skip
    result.evaluations = [
        record._replace(round=round, objective=objective)
        for record, (round, objective) in zip(result.evaluations, rounds, strict=True)
    ]
    shown = lines(result.plot().axes[0])["objective after a round"]
    assert list(shown.get_xdata()) == [1, 6, 9]  # after rounds 0, 2 and 4


def test_failures_of_rounds() -> None:
    with pytest.warns(RuntimeWarning, match="NaN"):
        result = run(lambda x: float(x @ x) if x[0] < 2.1 else math.nan)
    failed = result.history["nans"]
    rounds = np.diff(failed, prepend=0) > 0
    assert rounds.any()
    shown = lines(result.plot().axes[0])
    (label,) = (name for name in shown if name.startswith("failed"))
    assert list(shown[label].get_xdata()) == list(result.history["evaluations"][rounds])


def test_values_on_minibatches_have_no_best() -> None:
    rows = np.random.default_rng(0).standard_normal((40, 3))
    result: Any = run(lambda x, batch: float(np.square(batch - x).mean()), rows)
    searched = [record._replace(rows=5) for record in records([3.0, 2.0])]
    whole = searched[0]._replace(value=90.0, rows=40, objective=True)  # a sum
    result.evaluations = [whole, *searched, whole]
    (axes,) = result.plot().axes  # no ranks of points either
    shown = lines(axes)
    assert list(shown["values on minibatches"].get_ydata()) == [3.0, 2.0]
    assert "values on minibatches" in shown
    assert "best so far" not in shown


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1e6, 1e3, 1e-3], "log"),
        ([20.0, 19.0, 18.0], "linear"),
        ([1e6, 1e3, -2.0], "symlog"),
        ([1e6, 1e3, 0.0], "symlog"),
        ([20.0, -1.0, -18.0], "linear"),
        ([0.0, 0.0], "linear"),
    ],
)
def test_scale_of_the_values(values: list[float], scale: str) -> None:
    result: Any = desopt.Result(run(), initial_fun=math.nan)
    result.history = desopt.History()
    result.evaluations = records(values)
    assert result.plot().axes[0].get_yscale() == scale


def test_points_of_several_variables() -> None:
    result = logged([5.0, 1.0, np.nan, 3.0])
    axes: Any = result.plot().axes[1]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["x[0]", "x[1]", "x[2]"]
    heights = np.array([line[:, 1] for line in coordinates(axes)])
    points = np.array([result.evaluations[place].x for place in (0, 3, 1)])  # the best last
    np.testing.assert_array_equal(heights.argsort(axis=0), points.argsort(axis=0))
    assert (heights.min(), heights.max()) == (0.0, 1.0)
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), heights[-1])  # in orange
    assert "the best, 1, in orange" in axes.get_title()
    texts = {text.get_text() for text in axes.texts}
    assert {f"{points[:, 0].min():.3g}", f"{points[:, 2].max():.3g}"} <= texts


def test_a_variable_over_decades_is_logarithmic() -> None:
    result = logged([3.0, 2.0, 1.0])
    result.evaluations = [
        record._replace(x=np.array([10.0 ** (-3 * place), place, 5.0]))
        for place, record in enumerate(result.evaluations)
    ]
    axes: Any = result.plot().axes[1]
    assert axes.get_xticklabels()[0].get_text() == "x[0]\nlog"
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [0.0, 1.0, 0.5], atol=1e-12)
    assert coordinates(axes)[1][0, 1] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("n", "panels", "labels"),
    [(1, 2, ("x[0]", "value")), (2, 3, ("x[0]", "x[1]")), (10, 3, ("", "")), (11, 1, None),
     (None, 1, None)],
)  # fmt: skip
def test_panels_by_the_number_of_variables(n: int | None, panels: int, labels: Any) -> None:
    """A colour bar is a panel too."""
    axes = logged([5.0, 3.0, 4.0], n).plot().axes
    assert len(axes) == panels
    if labels is not None:
        assert (axes[1].get_xlabel(), axes[1].get_ylabel()) == labels


def test_all_failed() -> None:
    (axes,) = logged([np.nan, np.nan]).plot().axes
    assert "failed (2)" in lines(axes)


def test_many_points_are_thinned_and_the_best_is_kept() -> None:
    values = np.random.default_rng(1).permutation(np.arange(1.0, 50_001.0))
    result = logged(values)
    axes = result.plot().axes
    assert len(coordinates(axes[1])) == 300
    assert "the best, 1, in orange" in axes[1].get_title()
    assert len(lines(axes[0])["single values"].get_xdata()) == 25_000


def test_files_and_windows(tmp_path: Path) -> None:
    result = logged([5.0, 3.0, np.nan, 4.0])
    for name, head in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.svg", b"<?xml")):
        result.plot(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(head)
    assert pyplot.get_fignums() == []  # files need no window
    figure = result.plot()
    assert pyplot.get_fignums() == [figure.number]


def test_the_legend_is_beside_the_data() -> None:
    figure = logged([5.0, 3.0, np.nan, 4.0]).plot()
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert legend.get_window_extent().y0 >= figure.axes[0].get_window_extent().y1


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'desopt\[report\]'"):
        result.plot()


def test_without_values() -> None:
    result = desopt.minimize(
        lambda x: 1.0, np.ones(2), workers=1, rounds=1, iterations=2, engine="serial", eval_every=0
    )
    with pytest.raises(ValueError, match=r"nothing to draw: .* eval_every=1"):
        result.plot()
