"""The style of every plot: sizes, fonts, grid, and which line has which look.

A method's look (colour, dash, marker) is part of its entry in the registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from desopt.methods.registry import COMPARED, METHODS, Look

TEXT_WIDTH, COLUMN_WIDTH = 7.16, 3.5  # inches, of the paper's journal
SCREEN_SIZE, SMALL_SIZE = (10.0, 4.6), (6.0, 3.6)  # inches, of plots for a screen
DPI = 150

GREY = "#666666"  # reference lines, and legend entries for dashes
REFERENCE_LINE: Any = {"color": GREY, "linestyle": (0, (6, 4)), "linewidth": 1.0}
BAND_OPACITY = 0.16

#: The dash of a step size, where colour and marker are the method's.
STEP_DASHES = (":", "--", "-", "-.")

_COMMON: Any = {  # keys of matplotlib's rcParams
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "lines.markeredgewidth": 0.0,
    "svg.hashsalt": "desopt",  # equal results give equal files
}
_PRINT: Any = _COMMON | {
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],  # comes with matplotlib: the same on every machine
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.5,
    "grid.linewidth": 0.4,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.minor.width": 0.3,
    "ytick.minor.width": 0.3,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "pdf.fonttype": 42,  # embedded TrueType, as publishers require
    "svg.fonttype": "path",
}
_SCREEN: Any = _COMMON | {
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "savefig.dpi": DPI,
}


@contextmanager
def for_print() -> Iterator[None]:
    """Figures for a LaTeX document."""
    from matplotlib import rc_context

    with rc_context(_PRINT):
        yield


@contextmanager
def for_screen() -> Iterator[None]:
    """Plots for a screen."""
    from matplotlib import rc_context

    with rc_context(_SCREEN):
        yield


def method_look(name: str) -> Look:
    return METHODS[name].look if name in METHODS else numbered_look(0)


def numbered_look(place: int) -> Look:
    """For lines that are not methods: the looks of the compared methods, in their order."""
    return METHODS[COMPARED[place % len(COMPARED)]].look


def step_dash(step: float, steps: Sequence[float]) -> str:
    return STEP_DASHES[steps.index(step) % len(STEP_DASHES)]


def step_look(key: tuple[Any, ...], steps: Sequence[float]) -> Look:
    """Of a method with a step size, given as (method, step size)."""
    return method_look(key[0])._replace(dash=step_dash(key[1], steps))


def setting_look(compared: Sequence[str], key: tuple[Any, ...], place: int) -> Look:
    """The method's look if only methods are compared, else one by place."""
    known = list(compared) == ["method"] and key[0] in METHODS
    return METHODS[key[0]].look if known else numbered_look(place)
