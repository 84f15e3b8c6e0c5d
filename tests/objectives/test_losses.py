"""Every fact of a loss's entry against the kernels, the oracle and the documentation."""

import math

import numpy as np
import pytest
from helpers import oracle, tables

from desopt import LOSSES
from desopt.kernels import losses as kernels
from desopt.objectives import Loss
from desopt.report import names

MARGINS = np.concatenate([np.linspace(-30.0, 30.0, 1201), [0.0, 1.0, 1e-12, -1e4, 1e4]])


def computed(loss: Loss, margin: np.ndarray) -> np.ndarray:
    """By the kernel."""
    out = np.empty(margin.size)
    kernels.fill_losses(loss.kind, margin, out, margin.size)
    return out


@pytest.mark.parametrize(("name", "loss"), LOSSES.items())
def test_kernel_reference_and_oracle_agree(name: str, loss: Loss) -> None:
    expected = oracle.margin_loss(name, MARGINS)
    np.testing.assert_allclose(computed(loss, MARGINS), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(loss.reference(MARGINS), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_formula_is_the_reference(loss: Loss) -> None:
    functions = {name: getattr(math, name) for name in ("exp", "log", "tanh")}
    for a in (-3.5, -0.25, 0.0, 0.75, 1.0, 4.0):
        value = eval(loss.formula.replace("^", "**"), {"a": a, "max": max, **functions})
        assert value == pytest.approx(loss.reference(np.array([a]))[0], rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_convex_or_not(loss: Loss) -> None:
    """By second differences."""
    bends = np.diff(loss.reference(np.linspace(-5.0, 5.0, 401)), 2)
    assert (bends.min() >= -1e-12) == loss.convex


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_margin_of_infinity_costs_nothing(loss: Loss) -> None:
    """The kernels pad with it."""
    assert computed(loss, np.array([np.inf]))[0] == 0.0
    assert loss.reference(np.array([np.inf]))[0] == 0.0


@pytest.mark.parametrize("kind", [-1, max(loss.kind for loss in LOSSES.values()) + 1])
def test_an_unknown_kind_is_nan(kind: int) -> None:
    out = np.zeros(3)
    kernels.fill_losses(kind, np.zeros(3), out, 3)
    assert np.isnan(out).all()
    assert math.isnan(kernels.sum_losses(kind, np.zeros(3)))


def test_kinds_and_titles_are_distinct() -> None:
    assert len({loss.kind for loss in LOSSES.values()}) == len(LOSSES)
    titles = [loss.title for loss in LOSSES.values()]
    assert len(set(titles)) == len(LOSSES)
    assert [names.problem(name) for name in LOSSES] == titles


def test_tables_of_the_documentation() -> None:
    rows = tables.rows("docs/guide.md", "`fun=`")
    assert {tables.name(row[0]): tuple(row[1:]) for row in rows} == {
        name: (loss.model, loss.formula) for name, loss in LOSSES.items()
    }
