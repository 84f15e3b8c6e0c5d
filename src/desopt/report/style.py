"""The style of every plot: sizes, fonts, grid, and which line has which look.

A method's look (colour, dash, marker) is part of its entry in the registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from desopt.methods.registry import COMPARED, METHODS, Look
from desopt.system.plot_style import COMMON, GREY, SCREEN_SIZE, SMALL_SIZE, for_screen

TEXT_WIDTH, COLUMN_WIDTH = 7.16, 3.5  # inches, of the paper's journal

REFERENCE_LINE: Any = {"color": GREY, "linestyle": (0, (6, 4)), "linewidth": 1.0}
BAND_OPACITY = 0.16

#: The dash of a step size, where colour and marker are the method's.
STEP_DASHES = (":", "--", "-", "-.")

_PRINT: Any = COMMON | {
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


@contextmanager
def for_print() -> Iterator[None]:
    """Figures for a LaTeX document."""
    from matplotlib import rc_context

    with rc_context(_PRINT):
        yield


def method_look(name: str) -> Look:
    return METHODS[name].look if name in METHODS else numbered_look(0)


def numbered_look(place: int) -> Look:
    """For lines that are not methods: the looks of the compared methods, in their order.

    When these are used up, their colours come again with the dashes and markers of others.
    """
    turn, method = divmod(place, len(COMPARED))
    other = METHODS[COMPARED[(method + turn) % len(COMPARED)]].look
    return METHODS[COMPARED[method]].look._replace(dash=other.dash, marker=other.marker)


def dashes(method: str) -> list[str]:
    """The dash of a method, and then the others."""
    own = method_look(method).dash
    return [own, *(dash for dash in STEP_DASHES[::-1] if dash != own)]


def step_dash(step: float | str, steps: Sequence[float | str]) -> str:
    return STEP_DASHES[steps.index(step) % len(STEP_DASHES)]


def step_look(key: tuple[Any, ...], steps: Sequence[float | str]) -> Look:
    """Of a method with a step size, given as (method, step size)."""
    return method_look(key[0])._replace(dash=step_dash(key[1], steps))


def setting_look(compared: Sequence[str], key: tuple[Any, ...], place: int) -> Look:
    """The method's look if only methods are compared, else one by place."""
    known = list(compared) == ["method"] and key[0] in METHODS
    return METHODS[key[0]].look if known else numbered_look(place)


__all__ = [
    "BAND_OPACITY",
    "COLUMN_WIDTH",
    "GREY",
    "REFERENCE_LINE",
    "SCREEN_SIZE",
    "SMALL_SIZE",
    "TEXT_WIDTH",
    "for_print",
    "for_screen",
    "method_look",
    "numbered_look",
    "setting_look",
    "step_dash",
    "step_look",
]
