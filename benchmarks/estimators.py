"""The estimators on held-out rows: direct optimisation of accuracy, F1, AUC and a 10:1 cost.

Ten random splits of five real data sets; every model has the same training rows, at most 4,000, and
the same test rows, at most 10,000. scikit-learn's models have their defaults, and so have ours.
Results are appended to a CSV file: an interrupted benchmark continues, and ``--table`` writes the
report from what there is.

    DESOPT_DATA=folder python benchmarks/estimators.py
    python benchmarks/estimators.py --table
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, make_scorer, roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit, TunedThresholdClassifierCV
from sklearn.svm import LinearSVC

from desopt.data import load
from desopt.sklearn import DESClassifier
from desopt.system.progress import Progress

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / "results" / "estimators"
RESULTS, REPORT = FOLDER / "results.csv", FOLDER / "README.md"

SETS = ("a9a", "ijcnn1", "mushrooms", "heart-sites", "susy-30k")
SPLITS, TRAIN, TEST = 10, 4_000, 10_000
#: A missed positive costs as much as ten false alarms.
COSTS = [[0, 1], [10, 0]]


def cost(y: Any, decided: Any) -> float:
    """The mean cost of the decisions."""
    return float(np.mean(np.asarray(COSTS, float)[y, decided]))


def _logistic(**more: Any) -> LogisticRegression:
    return LogisticRegression(max_iter=1000, **more)


def _tuned(scoring: Any) -> TunedThresholdClassifierCV:
    return TunedThresholdClassifierCV(_logistic(), scoring=scoring)


MODELS: dict[str, Callable[[], Any]] = {
    "LogisticRegression": _logistic,
    "LogisticRegression, balanced": lambda: _logistic(class_weight="balanced"),
    "LogisticRegression, 10:1 weights": lambda: _logistic(class_weight={0: 1, 1: 10}),
    "LogisticRegression, threshold tuned to F1": lambda: _tuned("f1"),
    "LogisticRegression, threshold tuned to cost": lambda: _tuned(
        make_scorer(cost, greater_is_better=False)
    ),
    "LinearSVC": LinearSVC,
    "DES logistic": DESClassifier,
    "DES squared_hinge": lambda: DESClassifier("squared_hinge"),
    "DES f1": lambda: DESClassifier("f1"),
    "DES auc": lambda: DESClassifier("auc"),
    "DES cost matrix": lambda: DESClassifier(COSTS),
}

COLUMNS = ("set", "split", "model", "accuracy", "f1", "auc", "cost", "seconds")


def measured(model: Any, rows: tuple[Any, ...]) -> dict[str, float]:
    """The scores of a model on the test rows, and the CPU seconds of its fit."""
    X, y, train, test = rows
    began = time.process_time()
    model.fit(X[train], y[train])
    seconds = time.process_time() - began
    decided = model.predict(X[test])
    score = getattr(model, "estimator_", model).decision_function(X[test])
    return {
        "accuracy": accuracy_score(y[test], decided),
        "f1": f1_score(y[test], decided),
        "auc": roc_auc_score(y[test], score),
        "cost": cost(y[test], decided),
        "seconds": seconds,
    }


def run() -> None:
    done = {(row["set"], int(row["split"]), row["model"]) for row in read()}
    data: dict[str, tuple[Any, Any]] = {}
    total = len(SETS) * SPLITS * len(MODELS)
    FOLDER.mkdir(parents=True, exist_ok=True)
    fresh = not RESULTS.exists()
    with Progress("estimators", total, done=len(done), unit="fits", show=True) as progress, \
            RESULTS.open("a", encoding="ascii", newline="") as file:  # fmt: skip
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if fresh:
            table.writeheader()
        for split in range(SPLITS):
            for name in SETS:
                for model in MODELS:
                    if (name, split, model) in done:
                        continue
                    if name not in data:
                        found = load(name)
                        data[name] = found.X, (found.y > 0).astype(int)
                    X, y = data[name]
                    scores = measured(MODELS[model](), (X, y, *_split(X, y, split)))
                    values = {key: f"{value:.6g}" for key, value in scores.items()}
                    table.writerow({"set": name, "split": split, "model": model, **values})
                    file.flush()
                    done.add((name, split, model))
                    progress.update(done=len(done), note=f"{name}, {model}")


def _split(X: Any, y: Any, number: int) -> tuple[Any, Any]:
    half = StratifiedShuffleSplit(1, test_size=0.3, random_state=number)
    train, test = next(half.split(np.zeros(y.size), y))
    return train[:TRAIN], test[:TEST]


def read() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="ascii", newline="") as file:
        return list(csv.DictReader(file))


# --- the report --------------------------------------------------------------------------------

#: Measure, its heading, whether more is better, and the models to compare.
TABLES: tuple[tuple[str, str, bool, tuple[str, ...]], ...] = (
    ("accuracy", "Accuracy", True,
     ("LogisticRegression", "LinearSVC", "DES logistic", "DES squared_hinge")),
    ("f1", "F1", True,
     ("LogisticRegression", "LogisticRegression, balanced",
      "LogisticRegression, threshold tuned to F1", "DES f1")),
    ("auc", "AUC", True, ("LogisticRegression", "LogisticRegression, balanced", "DES auc")),
    ("cost", "Cost, 10 for a missed positive and 1 for a false alarm", False,
     ("LogisticRegression", "LogisticRegression, balanced", "LogisticRegression, 10:1 weights",
      "LogisticRegression, threshold tuned to cost", "DES cost matrix")),
)  # fmt: skip


def report() -> Iterator[str]:
    rows = read()
    there = {(row["set"], row["model"], int(row["split"])) for row in rows}
    splits = 0  # complete ones
    while all((name, model, splits) in there for name in SETS for model in MODELS):
        splits += 1
    yield "# The estimators on held-out rows"
    yield ""
    yield (
        f"Written by `python benchmarks/estimators.py --table`: means over {splits} random splits, "
        f"at most {TRAIN:,} training and {TEST:,} test rows, defaults everywhere. In brackets, the "
        "difference to the best of the others, split by split: its mean and standard error. "
        "*ahead* and *behind* are differences of more than two standard errors that four decimals "
        "show. CPU seconds are medians. The single fits "
        "are in [results.csv](results.csv). What follows from them: [docs](../../docs/sklearn.md)."
    )
    for measure, title, more, models in TABLES:
        yield from ("", f"## {title}", "", "| set | " + " | ".join(models) + " |")
        yield "|---|" + "---|" * len(models)
        for name in SETS:
            values = {model: _of(rows, name, model, measure, splits) for model in models}
            cells = [_cell(model, values, more) for model in models]
            yield f"| {name} | " + " | ".join(cells) + " |"
    yield from ("", "## CPU seconds of a fit", "", "| set | " + " | ".join(MODELS) + " |")
    yield "|---|" + "---|" * len(MODELS)
    for name in SETS:
        cells = [
            f"{statistics.median(_of(rows, name, model, 'seconds', splits)):.2f}"
            for model in MODELS
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"


def _of(rows: Any, name: str, model: str, measure: str, splits: int) -> list[float]:
    these = (row for row in rows if (row["set"], row["model"]) == (name, model))
    return [float(row[measure]) for row in these if int(row["split"]) < splits]


def _cell(model: str, values: dict[str, list[float]], more: bool) -> str:
    """The mean; for ours, also the difference to the best of scikit-learn's."""
    mean = statistics.mean(values[model])
    if not model.startswith("DES"):
        return f"{mean:.4f}"
    others = [v for name, v in values.items() if not name.startswith("DES")]
    best = (max if more else min)(others, key=statistics.mean)
    differences = [a - b for a, b in zip(values[model], best, strict=True)]
    gap, spread = statistics.mean(differences), statistics.stdev(differences)
    error = spread / len(differences) ** 0.5
    sure = abs(gap) > 2.0 * error and abs(gap) >= 5e-5
    word = "" if not sure else ", *ahead*" if (gap > 0) == more else ", *behind*"
    return f"{mean:.4f} ({gap:+.4f} ± {error:.4f}{word})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--table", action="store_true", help="write the report, run nothing")
    if not parser.parse_args().table:
        run()
    text = "\n".join(report()) + "\n"
    REPORT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
