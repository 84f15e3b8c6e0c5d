"""The tables, the JSON file and the picture of ``desopt bench``."""

from __future__ import annotations

import importlib.util
import json
import platform
from pathlib import Path
from typing import Any

import numba
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from desopt._version import __version__
from desopt.bench import speed, system
from desopt.objectives.losses import LOSSES
from desopt.report import drawing, style
from desopt.system.progress import Progress


def run(out: Path, quick: bool = False) -> dict[str, Any]:
    """Run the benchmarks, print tables, write bench.json and, with matplotlib, bench.png."""
    console = Console()
    seconds = 0.5 if quick else 3.0
    results: dict[str, Any] = {
        "versions": {"desopt": __version__, "numpy": np.__version__, "numba": numba.__version__},
        "machine": {"processor": platform.processor(), "python": platform.python_version()},
    }
    results["speed"] = []
    with Progress("NumPy against desopt", len(speed.BENCHMARKS)) as progress:
        for benchmark in speed.BENCHMARKS:
            results["speed"].append(speed.measure(benchmark, seconds))
            progress.advance()
    _speed_table(console, "Microseconds per local iteration, one thread", results["speed"], "numpy")
    results["losses"] = list(speed.measure_losses(seconds / 2))
    first, *others = LOSSES
    title = f"{', '.join(others)} against {first}, microseconds (up to a few percent of noise)"
    _speed_table(console, title, results["losses"], first)
    if not quick:
        results["scaling"] = speed.measure_scaling(seconds)
        _scaling_table(console, results["scaling"])
        results["threads"] = system.two_threads(2 * seconds)
        _plain_table(console, "Two threads against one, M = 10, merge included", results["threads"])
        results["memory"] = system.memory()
        _plain_table(console, "Memory of the process, 60,000 rows", results["memory"])
        results["start"] = system.start_up()
        _plain_table(console, "Start-up, seconds", results["start"])
        results["evaluation"] = system.evaluation_share()
        _plain_table(console, "Reporting the training loss", [results["evaluation"]])
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench.json").write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"written: {out / 'bench.json'}")
    if "scaling" in results:
        picture = _picture(results["scaling"], out)
        if picture is not None:
            console.print(f"written: {picture}")
    return results


def _speed_table(console: Console, title: str, lines: list[dict[str, Any]], other: str) -> None:
    table = _table(title)
    for name in ("shape", "method", "loss", "baseline"):
        table.add_column(name)
    for name in ("desopt", other, "ratio", "at least"):
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(
            line["shape"], line["method"], line["loss"], line["baseline"],
            _number(line["desopt_us"]), _number(line["numpy_us"]), _number(line["ratio"]),
            _number(line["at_least"]),
        )  # fmt: skip
    console.print(table)


def _scaling_table(console: Console, scaling: dict[str, list[dict[str, float]]]) -> None:
    by_n = {line["n"]: line["us"] for line in scaling["by_n"]}
    ratio = by_n[10_000_000] / by_n[10_000]
    for line in scaling["by_n"]:
        console.print(f"des-mr, n = {line['n']:>12,}, 70 non-zeros per row: {line['us']:.3g} us")
    console.print(f"n = 10^7 against n = 10^4: {ratio:.2f} times the time (at most 2)")
    for line in scaling["by_nonzeros"]:
        console.print(f"des-mr, {line['nonzeros']:>5g} non-zeros per row: {line['us']:.3g} us")


def _plain_table(console: Console, title: str, lines: list[dict[str, Any]]) -> None:
    table = _table(title)
    for name, value in lines[0].items():
        justify: Any = "left" if isinstance(value, str) else "right"
        table.add_column(name.replace("_", " "), justify=justify)
    for line in lines:
        table.add_row(*(v if isinstance(v, str) else _number(v) for v in line.values()))
    console.print(table)


def _table(title: str) -> Table:
    """Without frames: every number is whole in 80 columns."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _number(value: float) -> str:
    """Three digits; thousands are not written as powers of ten."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _picture(scaling: dict[str, list[dict[str, float]]], out: Path) -> Path | None:
    """Time per iteration against n and against non-zeros per row; None without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    panels = {
        "by_n": ("n", "dimension n (70 non-zeros per row)"),
        "by_nonzeros": ("nonzeros", "non-zeros per row (n = 47,236)"),
    }
    look = style.method_look("des-mr")
    with style.for_screen():
        figure = Figure(figsize=style.SCREEN_SIZE, layout="constrained")
        grid = figure.subplots(1, 2, sharey=True)
        for axes, (name, (key, label)) in zip(grid, panels.items(), strict=True):
            x, y = ([point[column] for point in scaling[name]] for column in (key, "us"))
            axes.loglog(x, y, color=look.colour, marker=look.marker)
            axes.set_xlabel(label)
        grid[0].set_ylabel("microseconds per local iteration")
        figure.suptitle("des-mr on logistic regression, minibatch of 1,000 rows, one thread")
        (path,) = drawing.save(figure, out, "bench", "time per iteration", ("png",))
    return path
