"""The pictures of docs/how.md, by the code that they are about: python docs/pictures/how.py."""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

import desopt
from desopt.contract.codec import digest_of
from desopt.contract.types import Answer
from desopt.methods import DES
from desopt.methods.samplers import Gaussian, Key, MixtureRademacher
from desopt.objectives.local import drive
from desopt.run import journal as journals
from desopt.run.records import records
from desopt.system.plot_style import BLUE, COMMON, GREEN, GREY, ORANGE

COLOURS = (BLUE, ORANGE, GREEN)
STYLE: Any = COMMON | {
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "axes.grid": False,
    "svg.fonttype": "none",  # the reader's fonts: small files, text that can be found
    "font.family": "sans-serif",
    "figure.constrained_layout.use": True,
}
FloatArray = NDArray[np.float64]

# --- one round -------------------------------------------------------------------------------

K, MINIMA = 8, np.array([[1.7, 1.0], [1.0, 2.0], [0.6, 0.3]])


def local(worker: int, x: FloatArray) -> float:
    """What worker i minimises. f is the mean of the three, with its minimum at that of these."""
    d = x - MINIMA[worker]
    return float(d[0] ** 2 + 2.0 * d[1] ** 2 + d[0] * d[1])


def one_round() -> Figure:
    """Three workers search from x; their bits; what the server makes of them."""
    method = DES(name="des", sampler=Gaussian(), iterations=K, step_size=0.9, momentum=0.5, seed=9)
    state = method.init(np.array([-1.0, -0.8]))
    task = method.plan(state)
    paths, answers = [], []
    for worker in range(3):
        points: list[FloatArray] = []

        def value(x: FloatArray, _: int, worker: int = worker, seen: Any = points) -> float:
            seen.append(x.copy())
            return local(worker, x)

        search = method.search(task, worker)
        drive(search, value)
        answers.append(search.answer())
        paths.append(points)
    bits = [method.layout.decode(answer).bits for answer in answers]
    after = method.merge(state, [Answer(a.worker, a.payload, 0, 0) for a in answers])

    figure = Figure(figsize=(6.4, 6.6))
    (first, second), (third, fourth) = figure.subplots(2, 2)
    ends = []
    for axes in (first, second, fourth):
        contours(axes)
        axes.plot(*state.x, "ko", ms=7, zorder=5)
        axes.annotate("x", state.x, (-10, -12), textcoords="offset points")
    first.set_title("1  Everyone has x")
    for worker in range(3):
        first.plot(*MINIMA[worker], "*", color=COLOURS[worker], ms=12)
    first.text(
        1.85, 2.05, "★ where each\nworker's own\ndata pull", fontsize=8, va="top", ha="center"
    )
    for worker, (points, accepted) in enumerate(zip(paths, bits, strict=True)):
        here = points[0]
        for point, kept in zip(points[1:], accepted, strict=True):
            line: Any = (
                {"color": COLOURS[worker], "lw": 1.8} if kept else {"color": "#bbbbbb", "lw": 0.8}
            )
            second.plot(*np.transpose([here, point]), **line)
            if kept:
                here = point
                second.plot(*here, "o", color=COLOURS[worker], ms=3.5)
        ends.append(here)
    second.set_title("2  Each tries K = 8 steps on its own data")
    second.text(-1.85, -1.75, "grey: rejected", fontsize=8, color=GREY)

    third.set_title("3  Each answers with 8 bits")
    for worker, accepted in enumerate(bits):
        for k, kept in enumerate(accepted):
            colour = COLOURS[worker] if kept else "white"
            third.add_patch(Rectangle((k, 2 - worker), 0.9, 0.8, fc=colour, ec=GREY, lw=0.8))
            ink = "white" if kept else GREY
            third.text(k + 0.45, 2.4 - worker, f"{int(kept)}", ha="center", va="center", color=ink)
        third.text(-0.2, 2.4 - worker, f"worker {worker}", ha="right", va="center", fontsize=9)
        payload = answers[worker].payload.hex()
        third.text(8.2, 2.4 - worker, f"0x{payload}", va="center", fontsize=9, family="monospace")
    third.text(
        3.2, -0.5, "one byte each, whatever the\nlength of x", ha="center", va="top", fontsize=9
    )
    third.set(xlim=(-3.6, 10.8), ylim=(-2.4, 3.6))
    third.axis("off")

    for worker, end in enumerate(ends):
        fourth.plot(*np.transpose([state.x, end]), ":", color=COLOURS[worker], lw=1.2)
        fourth.plot(*end, "o", color=COLOURS[worker], ms=5)
    mean = np.mean(ends, axis=0)
    fourth.plot(*mean, "kD", ms=6, mfc="white", mew=1.2)
    fourth.annotate("mean", mean, (6, -4), textcoords="offset points", fontsize=9)
    fourth.annotate("", after.x, state.x, arrowprops={"arrowstyle": "->", "lw": 2})
    fourth.annotate("next x", after.x, (-34, 8), textcoords="offset points", fontsize=9)
    fourth.set_title("4  Anyone rebuilds the ends, and merges")
    return figure


def contours(axes: Any) -> None:
    grid = np.linspace(-2.0, 2.6, 60)
    f = [[np.mean([local(i, np.array([a, b])) for i in range(3)]) for a in grid] for b in grid]
    axes.contour(grid, grid, np.sqrt(f), levels=9, colors="#dddddd", linewidths=0.8)
    axes.set(xlim=(-2.0, 2.6), ylim=(-2.0, 2.6), xticks=[], yticks=[], aspect="equal")


# --- what the bits are -----------------------------------------------------------------------


def run_with_journal(folder: str, rounds: int = 30) -> tuple[Path, desopt.Result, list[FloatArray]]:
    """Logistic regression by ten workers, and x after every round."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((4_000, 50))
    labels = np.sign(rows @ random.standard_normal(50) + random.standard_normal(4_000))
    seen: list[FloatArray] = []
    path = Path(folder) / "run.journal"
    result = desopt.minimize(
        "lr", None, (rows, labels), method="des-mr", rounds=rounds, step_size=0.5, engine="serial",
        journal=path, eval_every=1, callbacks=[lambda row: seen.append(row.x.copy())],
    )  # fmt: skip
    return path, result, seen


def bits() -> Figure:
    """All answers of a run, and the share of accepted steps by iteration."""
    with TemporaryDirectory() as folder:
        path, _, _ = run_with_journal(folder)
        contents = journals.read(path)
    masks = np.array(
        [
            [
                np.unpackbits(np.frombuffer(a.payload, np.uint8), bitorder="little")[:100]
                for a in row
            ]
            for row in contents.answers
        ]
    )  # rounds, workers, iterations
    figure = Figure(figsize=(6.4, 5.2))
    top, bottom = figure.subplots(2, 1, height_ratios=(1.2, 1.0))
    shown = np.concatenate([masks[0], np.full((1, 100), 2), masks[-1]])
    top.imshow(
        shown, cmap=matplotlib.colors.ListedColormap(["#eeeeee", BLUE, "white"]), aspect="auto"
    )
    top.set_yticks([4.5, 15.5], ["round 1", "round 30"], rotation=90, va="center")
    top.set(
        xlabel="iteration k of the round",
        title="Answers of ten workers: a row each, blue = accepted",
    )
    top.tick_params(length=0)
    for spine in top.spines.values():
        spine.set_visible(False)
    thirds = [("rounds 1 to 3", slice(0, 3), BLUE), ("rounds 28 to 30", slice(27, 30), ORANGE)]
    for name, part, colour in thirds:
        share = masks[part].mean(axis=(0, 1)).reshape(20, 5).mean(axis=1)
        bottom.plot(np.arange(2.5, 100, 5), 100.0 * share, "o-", color=colour, label=name, ms=4)
    bottom.set(xlabel="iteration k of the round", ylabel="accepted, %", ylim=(0, 60), xlim=(0, 100))
    bottom.legend(frameon=False)
    return figure


# --- replay ----------------------------------------------------------------------------------


def replay() -> Figure:
    """The records of a journal, and x rebuilt from them."""
    with TemporaryDirectory() as folder:
        path, result, seen = run_with_journal(folder)
        with path.open("rb") as file:
            found = list(records(file, path, 8))
        rebuilt = [desopt.replay(path, round=t) for t in range(1, 31)]
    assert digest_of(rebuilt[-1]) == result.digest
    assert all(np.array_equal(a, b) for a, b in zip(seen, rebuilt, strict=True))
    figure = Figure(figsize=(6.4, 5.0))
    top, bottom = figure.subplots(2, 1, height_ratios=(1.0, 2.4))
    begin = 0
    names = {b"H": ("header", GREY), b"S": ("x0", ORANGE), b"R": ("round", BLUE)}
    for record in found:
        name, colour = names[record.kind]
        top.add_patch(Rectangle((begin, 0), record.end - begin, 1, fc=colour, ec="white", lw=0.8))
        if name != "round":
            place = (begin, 1.1) if name == "header" else (record.end + 60, 1.1)
            top.annotate(name, place, fontsize=9, color=colour)
        begin = record.end
    top.annotate(
        "the answers of 30 rounds", (begin * 0.6, 1.1), ha="center", fontsize=9, color=BLUE
    )
    top.set(xlim=(0, begin), ylim=(0, 1.5), yticks=[], xlabel="bytes of the journal")
    top.spines["left"].set_visible(False)
    rounds = np.arange(1, 31)
    for i, colour in zip((0, 7, 30), COLOURS, strict=True):
        bottom.plot(
            rounds, [x[i] for x in seen], "-", color=colour, lw=1.2, label=f"x[{i}] of the run"
        )
        bottom.plot(rounds, [x[i] for x in rebuilt], "o", color=colour, ms=4, mfc="none", mew=1.0)
    bottom.plot([], [], "o", color=GREY, mfc="none", mew=1.0, label="replayed: same bits")
    bottom.set(xlabel="round", title=f"digest of x after 30 rounds, both ways: {result.digest}")
    bottom.legend(frameon=False, fontsize=9, ncols=2)
    return figure


# --- the incremental kernel ------------------------------------------------------------------


def kernel() -> Figure:
    """Which entries of a minibatch a mixture step reads, and how many that is for growing n."""
    random = np.random.default_rng(2)
    b, n, l = 24, 40, 3
    entries = random.random((b, n)) < 0.12
    index, _ = MixtureRademacher(l=l).vector(Key(4, 0, 0), 0, n)
    assert index is not None
    columns = np.unique(index)
    touched = np.any(entries[:, columns], axis=1).tolist()
    figure = Figure(figsize=(6.4, 6.4))
    (matrix, margins), (counts, empty) = figure.subplots(
        2, 2, width_ratios=(9, 1), height_ratios=(1.3, 1.0)
    )
    for row, column in np.argwhere(entries):
        hit = column in columns
        matrix.add_patch(Rectangle((column, row), 0.85, 0.85, fc=ORANGE if hit else "#cccccc"))
    for column in columns:
        matrix.axvspan(column - 0.08, column + 0.93, color=ORANGE, alpha=0.12, lw=0)
    matrix.set(
        xlim=(0, n), ylim=(b, 0), xticks=columns + 0.45, yticks=[], ylabel="rows of the minibatch"
    )
    matrix.set_xticklabels([f"{c}" for c in columns])
    matrix.set_title(f"A step of l = {l} coordinates: these columns, these entries")
    for row in range(b):
        margins.add_patch(Rectangle((0, row), 1, 0.85, fc=ORANGE if touched[row] else "#eeeeee"))
    margins.set(xlim=(0, 1), ylim=(b, 0), xticks=[], yticks=[], title="margins")
    for axes in (matrix, margins):
        for spine in axes.spines.values():
            spine.set_visible(False)

    lengths, rows, per_row, l = np.array([100, 1_000, 10_000, 100_000]), 1_000, 75, 8
    every = np.full(lengths.size, rows * per_row)
    read = l * rows * per_row / lengths
    counts.loglog(lengths, lengths, "s--", color=GREY, label="a dense step: numbers drawn")
    counts.loglog(lengths, every, "D:", color=BLUE, label="a value from scratch: entries read")
    counts.loglog(lengths, read, "o-", color=ORANGE, label="a mixture step: entries read")
    counts.set(xlabel="n", title=f"{rows:,} rows of {per_row} entries, l = {l}", ylim=(3, 3e7))
    counts.legend(frameon=False, fontsize=8.5, loc="upper left")
    empty.axis("off")
    return figure


PICTURES = {"round": one_round, "bits": bits, "replay": replay, "kernel": kernel}


def draw(folder: Path) -> None:
    """Equal code draws equal files."""
    with matplotlib.rc_context(STYLE):
        for name, picture in PICTURES.items():
            text = io.StringIO()
            picture().savefig(text, format="svg", metadata={"Date": None})
            lines = (line.rstrip() for line in text.getvalue().splitlines())
            (folder / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw(Path(__file__).parent)
