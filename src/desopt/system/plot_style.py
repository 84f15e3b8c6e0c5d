"""What all plots have in common, whatever they show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SCREEN_SIZE, SMALL_SIZE = (10.0, 4.6), (6.0, 3.6)  # inches, of plots for a screen
DPI = 150

GREY = "#666666"  # reference lines, and legend entries for dashes
# Okabe and Ito's, distinct for most colour-blind readers
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"

COMMON: Any = {  # keys of matplotlib's rcParams
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "lines.markeredgewidth": 0.0,
    "svg.hashsalt": "desopt",  # equal results give equal files
}
_SCREEN: Any = COMMON | {
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "savefig.dpi": DPI,
}


@contextmanager
def for_screen() -> Iterator[None]:
    """Plots for a screen."""
    from matplotlib import rc_context

    with rc_context(_SCREEN):
        yield


def require_matplotlib(needs: str) -> None:
    """A ModuleNotFoundError with this text if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ModuleNotFoundError(needs) from error
