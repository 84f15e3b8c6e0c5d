"""README.md with a table for each part, and the curves of mnist as a figure."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from digits import MODELS


def report(folder: Path, done: dict[str, Any]) -> None:
    """README.md with a table for each part, and the curves of mnist as a figure."""
    lines = ["# PyTorch by forward passes: measurements", "",
             "By `benchmarks/forward_only`, from `results.json`. What they say is in "
             "[docs/torch.md](../../docs/torch.md)."]  # fmt: skip
    for part, columns in COLUMNS.items():
        rows = _joined({name: row for name, row in done.items() if name.startswith(f"{part}/")})
        if rows:
            lines += ["", f"## {part}", "", f"| | {' | '.join(columns)} |"]
            lines += ["|---|" + "---:|" * len(columns)]
            for name, row in rows.items():
                cells = [_cell(row.get(column)) for column in columns]
                lines += [f"| {name.partition('/')[2]} | {' | '.join(cells)} |"]
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if any(name.startswith("mnist/") for name in done):
        _draw(folder / "mnist.png", done)


COLUMNS = {
    "mnist": ("searched", "forwards", "accuracy", "bytes_up", "journal", "weights", "cpu_seconds"),
    "minilm": ("seeds", "searched", "forwards", "examples", "accuracy", "head", "baseline", "saved",
               "weights", "bytes_up", "cpu_seconds"),
    "kill": ("killed", "same"),
    "memory": ("weights", "peak"),
    "noise": ("n", "step", "effect", "error", "wrong", "steps"),
}  # fmt: skip


def _joined(rows: dict[str, Any]) -> dict[str, Any]:
    """Repetitions, whose names end in a seed, as one row of means; a spread where they differ."""
    joined: dict[str, list[Any]] = {}
    for name, row in rows.items():
        what, _, seed = name.rpartition("/")
        joined.setdefault(what if seed.isdigit() else name, []).append(row)
    return {name: _mean(group) if len(group) > 1 else group[0] for name, group in joined.items()}


def _mean(group: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": len(group)}
    for column in group[0]:
        values = [row[column] for row in group]
        mean, spread = statistics.mean(values), statistics.stdev(values)
        rounded = round(mean) if all(isinstance(value, int) for value in values) else mean
        found[column] = f"{mean:.3f} ± {spread:.3f}" if column in SPREADS else rounded
    return found


#: Shown with their standard deviations over seeds.
SPREADS = ("accuracy", "head", "baseline")


def _cell(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _draw(path: Path, done: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, model in zip(axes, MODELS, strict=True):
        for name, row in done.items():
            if name.startswith(f"mnist/{model}/"):
                forwards, values = zip(*row["curve"], strict=True)
                axis.plot(forwards[1:], values[1:], label=name.split("/", 2)[2])
        axis.set(xscale="log", xlabel="forward passes", title=model.upper())
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel("accuracy on test rows")
    figure.savefig(path, dpi=110)
    plt.close(figure)
