"""Cox regression with as many covariates as genes: held-out patients of four real sets.

A fifth of the patients is held out, at random, in each of several splits. The optimum of the same
objective is lifelines' where that has an answer in time, and in any case SciPy's: with a ridge, the
coefficients are a combination of the patients, so that a problem of thousands of covariates has as
many unknowns as patients.

    pip install lifelines
    python benchmarks/cox_sets.py --data FOLDER
    python benchmarks/cox_sets.py --table
"""

from __future__ import annotations

import argparse
import csv
import lzma
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import desopt
from desopt.objectives.survival import concordance
from desopt.system.progress import Progress

Floats = NDArray[np.float64]
Patients = tuple[Floats, Floats, Floats]
#: Of a file of results.
Rows = list[dict[str, str]]
Group = TypeVar("Group", bound=Hashable)

FOLDER = Path(__file__).resolve().parents[1] / "results" / "survival"
RESULTS = FOLDER / "sets.csv"
FILES = {
    "nki70": "nki70.csv.xz",
    "GSE7390": "breast_cancer_GSE7390-metastasis.arff.xz",
    "NSBCD": "NSBCD.csv.xz",
    "DLBCL": "DLBCL.csv.xz",
}
#: Of a covariate; the ridge grows with their number.
RIDGE = 1 / 75
SPLITS = 5
#: The most covariates for lifelines, which inverts a matrix of them, and for dense steps.
COLUMNS = 1_000
ITERATIONS = 200
FIELDS = ("set", "split", "fit", "covariates", "excess", "distance", "concordance", "cpu_seconds")


def read(path: Path) -> Patients:
    """Covariates, times and events; what has words becomes a column for each word but one."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("%")]
    if lines[0].startswith("@"):
        names = [line.split()[1] for line in lines if line.startswith("@attribute")]
        rows = [line.split(",") for line in lines if not line.startswith("@")]
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        last, happened = columns.pop("t.tdm"), columns.pop("e.tdm")
    else:
        names, *rows = csv.reader(lines)
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        columns.pop("pid")
        last, happened = columns.pop("time"), columns.pop("event")
    X = np.column_stack([column for values in columns.values() for column in _numbers(values)])
    return X, np.array(last, float), np.array(happened, float)


def _numbers(values: tuple[str, ...]) -> list[Floats]:
    try:
        return [np.array(values, float)]
    except ValueError:
        return [np.array([v == word for v in values], float) for word in sorted({*values})[1:]]


def fits(data: Patients, ridge: float) -> Iterator[tuple[str, Floats, float]]:
    """(fit, coefficients, CPU seconds)."""
    began = time.process_time()
    yield "row space (SciPy)", by_scipy(data, ridge), time.process_time() - began
    if data[0].shape[1] <= COLUMNS:
        began = time.process_time()
        yield "lifelines", by_lifelines(data, ridge), time.process_time() - began
    objective = desopt.Cox(ridge=ridge)
    other = ("des", 300) if data[0].shape[1] <= COLUMNS else ("des-mr", 3_000)
    for method, rounds in (("des-mr", 300), other):
        began = time.process_time()
        found = desopt.minimize(
            objective, None, data, method=method, workers=1, batch_size=data[1].size,
            rounds=rounds, iterations=ITERATIONS, step_size="auto", eval_every=0,
        )  # fmt: skip
        yield f"{method}, {rounds:,} rounds", found.x, time.process_time() - began


def by_lifelines(data: Patients, ridge: float, stratum: Floats | None = None) -> Floats:
    import pandas as pd
    from lifelines import CoxPHFitter

    X, last, event = data
    strata = {} if stratum is None else {"stratum": stratum}
    table = pd.DataFrame(X).assign(time=last, event=event, **strata)
    fitter = CoxPHFitter(penalizer=ridge)
    fitter.fit(table, "time", "event", strata=list(strata) or None)
    return np.asarray(fitter.params_, float)


def by_scipy(data: Patients, ridge: float) -> Floats:
    """The optimum in the span of the patients: x = V a, X = U S V^T."""
    from scipy.optimize import minimize

    X, last, event = data
    U, S, V = np.linalg.svd(X, full_matrices=False)
    Z = U * S

    def objective(a: Floats) -> tuple[float, Floats]:
        value, slope = likelihood(Z @ a, last, event)
        return value + ridge / 2 * float(a @ a), Z.T @ slope + ridge * a

    found = minimize(objective, np.zeros(S.size), jac=True, method="L-BFGS-B",
                     options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9})  # fmt: skip
    x: Floats = V.T @ found.x
    return x


def likelihood(risk: Floats, last: Floats, event: Floats) -> tuple[float, Floats]:
    """-(1/N) log PL with Efron's ties, and its derivatives by the risks of the patients."""
    weight = np.exp(risk - risk.max())
    value, slope = 0.0, np.zeros(risk.size)
    for t in np.unique(last[event > 0]):
        at_risk, dead = last >= t, (last == t) & (event > 0)
        deaths = int(dead.sum())
        value -= float((risk[dead] - risk.max()).sum())
        slope[dead] -= 1.0
        for j in range(deaths):
            share = at_risk * weight - j / deaths * (dead * weight)
            value += float(np.log(share.sum()))
            slope += share / share.sum()
    return value / risk.size, slope / risk.size


def run(folder: Path) -> Iterator[dict[str, Any]]:
    for name, file in FILES.items():
        X, last, event = read(folder / file)
        for split in range(SPLITS):
            order = np.random.default_rng(split).permutation(last.size)
            test, train = np.array_split(order, [last.size // 5])
            spread = X[train].std(axis=0, ddof=1)
            Z = ((X - X[train].mean(axis=0)) / np.where(spread > 0, spread, 1))[:, spread > 0]
            data = Z[train], last[train], event[train]
            ridge = round(RIDGE * Z.shape[1])
            best: tuple[float, Floats] | None = None
            for fit, x, seconds in fits(data, ridge):
                value = likelihood(data[0] @ x, *data[1:])[0] + ridge / 2 * float(x @ x)
                best = (value, x) if best is None else best
                yield {
                    "set": name, "split": split, "fit": fit, "covariates": Z.shape[1],
                    "excess": value - best[0], "distance": float(np.abs(x - best[1]).max()),
                    "concordance": concordance(Z[test] @ x, last[test], event[test]),
                    "cpu_seconds": seconds,
                }  # fmt: skip


def table(rows: Rows) -> None:
    """The means over splits, and the range of the concordance."""
    print("| set | fit | excess | largest difference | concordance | CPU seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (name, fit), group in grouped(rows, lambda row: (row["set"], row["fit"])).items():
        excess, distance, seconds = (
            mean(float(row[field]) for row in group)
            for field in ("excess", "distance", "cpu_seconds")
        )
        print(
            f"| {name} | {fit} | {excess:.2g} | {distance:.2g} | {concordances(group)}"
            f" | {seconds:.2g} |"
        )


def grouped(rows: Rows, key: Callable[[dict[str, str]], Group]) -> dict[Group, Rows]:
    """In the order in which they come first."""
    found: dict[Group, Rows] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def concordances(rows: Rows) -> str:
    """Their mean, and their range."""
    of = [float(row["concordance"]) for row in rows]
    return f"{mean(of):.3f} ({min(of):.3f} to {max(of):.3f})"


def main(
    about: str, files: str, results: Path, fields: Sequence[str], splits: int,
    run: Callable[[Path], Iterator[dict[str, Any]]], table: Callable[[Rows], None],
) -> None:  # fmt: skip
    """The command of this file and of ``cox_regions.py``: keep what ``run`` finds, show it."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--data", type=Path, help=f"the folder with {files}")
    parser.add_argument("--table", action="store_true", help="print what there is, run nothing")
    given = parser.parse_args()
    if given.data is not None and not given.table:
        results.parent.mkdir(parents=True, exist_ok=True)
        begun: set[tuple[str, int]] = set()
        with (
            open(results, "w", newline="", encoding="utf-8") as file,
            Progress("Cox", splits, unit="splits", show=True) as bar,
        ):
            writer = csv.DictWriter(file, fields, lineterminator="\n")
            writer.writeheader()
            for row in run(given.data):
                writer.writerow(row)
                file.flush()
                begun.add((row.get("set", ""), row["split"]))
                bar.update(done=len(begun) - 1, note=row["fit"])
    with open(results, newline="", encoding="utf-8") as file:
        table(list(csv.DictReader(file)))


if __name__ == "__main__":
    files = ", ".join(FILES.values())
    main(__doc__ or "", files, RESULTS, FIELDS, len(FILES) * SPLITS, run, table)
