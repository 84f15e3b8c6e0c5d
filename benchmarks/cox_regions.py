"""Cox regression by region: what it costs that a site's partial likelihood is its own.

Breast-cancer patients of TCGA, in the preparation of FLamby (``tcga_brca.csv`` and
``tcga_brca_centers.csv``), by the region of the hospital. A fifth of each region's patients is held
out, at random, in each of several splits. The pooled and the stratified optimum are lifelines'.

    pip install lifelines
    python benchmarks/cox_regions.py --data FOLDER
    python benchmarks/cox_regions.py --table
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

import desopt
from desopt.objectives.survival import concordance
from desopt.system.progress import Progress

Floats = NDArray[np.float64]
Patients = tuple[Floats, Floats, Floats]

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "survival" / "results.csv"
RIDGE = 0.01
SPLITS = 5
#: Federated, each with step_size="auto".
METHODS = ("des-mr", "des-c", "zo-nsgd")
ROUNDS, ITERATIONS = 150, 100
#: Of a split: two optima, DES on all patients, the methods above, and each of five regions alone.
FITS = 3 + len(METHODS) + 5
FIELDS = ("split", "fit", "pooled", "stratified", "distance", "concordance")


def read(folder: Path) -> tuple[Patients, list[str]]:
    """All patients, and the region of each."""
    with open(folder / "tcga_brca_centers.csv", newline="", encoding="utf-8") as file:
        regions = {row["TSS Code"]: row["Region"] for row in csv.DictReader(file)}
    with open(folder / "tcga_brca.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name not in ("pid", "E", "T")]
    X = np.array([[float(row[name]) for name in names] for row in rows])
    time, event = (np.array([float(row[name]) for row in rows]) for name in "TE")
    region = [regions[row["pid"].split("-")[1]] for row in rows]
    return (X, time, event), region


def sites_of(data: Patients, region: list[str]) -> list[NDArray[np.int64]]:
    """The patients of each region with five events or more."""
    names = np.array(region)
    parts = [np.flatnonzero(names == name) for name in sorted(set(region))]
    return [part for part in parts if data[2][part].sum() >= 5]


def fits(data: Patients, sites: list[NDArray[np.int64]]) -> Iterator[tuple[str, Floats]]:
    """Coefficients by each way to fit these patients."""
    yield "pooled (lifelines)", by_lifelines(data, None)
    stratum = np.zeros(data[1].size)
    for number, rows in enumerate(sites):
        stratum[rows] = number
    yield "stratified (lifelines)", by_lifelines(data, stratum)
    objective = desopt.Cox(ridge=RIDGE)
    common: dict[str, Any] = {
        "rounds": ROUNDS, "iterations": ITERATIONS, "step_size": "auto", "eval_every": 0,
    }  # fmt: skip
    whole = desopt.minimize(objective, None, data, workers=1, batch_size=data[1].size, **common)
    yield "pooled, des-mr", whole.x
    shards = [tuple(array[rows] for array in data) for rows in sites]
    for method in METHODS:
        result = desopt.minimize(objective, None, shards, method=method, **common)
        yield f"federated, {method}", result.x
    for number, shard in enumerate(shards):
        yield f"site {number} alone", desopt.minimize(objective, None, [shard], **common).x


def by_lifelines(data: Patients, stratum: Floats | None) -> Floats:
    import pandas as pd
    from lifelines import CoxPHFitter

    X, time, event = data
    table = pd.DataFrame(X).assign(time=time, event=event)
    if stratum is not None:
        table = table.assign(stratum=stratum)
    fitter = CoxPHFitter(penalizer=RIDGE)
    fitter.fit(table, "time", "event", strata=None if stratum is None else ["stratum"])
    return np.asarray(fitter.params_, float)


def value(x: Floats, shards: list[Any]) -> float:
    """The penalised likelihood of these shards, each a stratum."""
    point = desopt.minimize(desopt.Cox(ridge=RIDGE), x, shards, rounds=1, iterations=1)
    return float(point.initial_fun)


def run(folder: Path) -> Iterator[dict[str, Any]]:
    (X, time, event), region = read(folder)
    every = sites_of((X, time, event), region)
    for split in range(SPLITS):
        rng = np.random.default_rng(split)
        parts = [np.array_split(rng.permutation(rows), [len(rows) // 5]) for rows in every]
        test = np.concatenate([part[0] for part in parts])
        train = np.concatenate([part[1] for part in parts])
        X_split = (X - X[train].mean(axis=0)) / X[train].std(axis=0, ddof=1)
        data = X_split[train], time[train], event[train]
        bounds = np.cumsum([0, *(len(part[1]) for part in parts)])
        sites = [np.arange(*ends) for ends in pairwise(bounds)]
        shards = [tuple(array[rows] for array in data) for rows in sites]
        pooled: Floats | None = None
        for fit, x in fits(data, sites):
            pooled = x if pooled is None else pooled
            yield {
                "split": split, "fit": fit, "pooled": value(x, [data]),
                "stratified": value(x, shards), "distance": float(np.abs(x - pooled).max()),
                "concordance": concordance(X_split[test] @ x, time[test], event[test]),
            }  # fmt: skip


def table(path: Path) -> None:
    """The means over splits; of single sites, those over all of them."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    grouped: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        fit = "one region alone" if row["fit"].startswith("site") else row["fit"]
        grouped.setdefault(fit, []).append(row)
    best = {
        name: {row["split"]: float(row[name]) for row in grouped[f"{name} (lifelines)"]}
        for name in ("pooled", "stratified")
    }
    print("| fit | excess, pooled | excess, stratified | largest difference | concordance |")
    print("| --- | --- | --- | --- | --- |")
    for fit, group in grouped.items():
        excess = [
            mean(float(row[name]) - best[name][row["split"]] for row in group) for name in best
        ]
        distance = mean(float(row["distance"]) for row in group)
        indices = [float(row["concordance"]) for row in group]
        spread = f"{mean(indices):.3f} ({min(indices):.3f} to {max(indices):.3f})"
        print(f"| {fit} | {excess[0]:.2g} | {excess[1]:.2g} | {distance:.2g} | {spread} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder with tcga_brca.csv")
    parser.add_argument("--table", action="store_true", help="print what there is, run nothing")
    given = parser.parse_args()
    if given.data is not None and not given.table:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with open(RESULTS, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            with Progress("fits", SPLITS * FITS, unit="fits", show=True) as bar:
                for done, row in enumerate(run(given.data), 1):
                    writer.writerow(row)
                    file.flush()
                    bar.update(done=done, note=row["fit"])
    table(RESULTS)


if __name__ == "__main__":
    main()
