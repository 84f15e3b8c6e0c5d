"""Ctrl-C at every kind of moment of a run: its result, its journal and what resumes from it."""

import gc
import inspect
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt
from desopt.run.session import Session

ROUNDS, MOMENTS = 4, 300


def sphere(x: NDArray[np.float64]) -> float:
    return float(x @ x)


def search(journal: Path) -> Any:
    return desopt.minimize(
        sphere, np.ones(4), method="des", workers=2, rounds=ROUNDS, iterations=3, seed=3,
        engine="serial", journal=journal, snapshot_every=2, progress=False,
    )  # fmt: skip


def refused(*_names: Any) -> None:
    raise PermissionError("no hard links here")


def isgenerator(frame: Any) -> bool:
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR)


def pressed_at(moment: int, run: Callable[[], Any]) -> int:
    """Call ``run`` with Ctrl-C at this moment; the number of moments there were.

    CPython looks for signals where a Python function begins and where a call of C has returned.
    Those within ``Session.run`` count. Generators do not: Python reports their end as a call, too.
    Nothing is collected meanwhile: what is raised in a callback of the collector is lost.
    """
    count, within = 0, False

    def moments(frame: Any, event: str, _: Any) -> None:
        nonlocal count, within
        if frame.f_code is Session.run.__code__ and event in ("call", "return"):
            within = event == "call"
        elif within and event in ("call", "c_return") and not isgenerator(frame):
            count += 1
            if count == moment:
                sys.setprofile(None)
                raise KeyboardInterrupt

    gc.disable()
    sys.setprofile(moments)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_every_moment_leaves_a_result_and_a_run_that_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def journal(name: str) -> Path:
        """In a folder of its own: the files beside a new journal are looked at, too."""
        (tmp_path / name).mkdir()
        return tmp_path / name / "j"

    if not links:
        monkeypatch.setattr("os.link", refused)
    undisturbed = search(journal("whole"))
    total = pressed_at(0, partial(search, journal("counted")))
    assert total > MOMENTS
    reached, pressed = set(), 0
    for moment in sorted({*range(1, total, total // MOMENTS), total - 2}):
        path = journal(str(moment))
        try:
            count = pressed_at(moment, partial(search, path))
        except KeyboardInterrupt as error:
            interrupt = error
        else:  # clocks and caches, as that of re, make a run a little shorter or longer
            assert count < moment
            continue
        pressed += 1
        assert isinstance(interrupt, desopt.Interrupted)
        result = interrupt.result
        assert result.nit == len(result.history)
        assert result.status == 6
        assert f"interrupted after round {result.nit}; " in result.message
        if result.nit:
            assert desopt.replay(path).tobytes() == result.x.tobytes()
        assert search(path).x.tobytes() == undisturbed.x.tobytes()
        reached.add(result.nit)
    assert reached == set(range(ROUNDS + 1))
    assert pressed > 0.8 * MOMENTS
