"""Cox regression by region: what it costs that a site's partial likelihood is its own.

Breast-cancer patients of TCGA, in the preparation of FLamby (``tcga_brca.csv`` and
``tcga_brca_centers.csv``), by the region of the hospital. A fifth of each region's patients is held
out, at random, in each of several splits. The pooled and the stratified optimum are lifelines'.

    pip install lifelines
    python benchmarks/cox_regions.py --data FOLDER
    python benchmarks/cox_regions.py --table
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from cox_sets import (
    FOLDER,
    SPLITS,
    Floats,
    Patients,
    Rows,
    by_lifelines,
    concordances,
    grouped,
    main,
)
from numpy.typing import NDArray

import desopt
from desopt.objectives.survival import concordance

RESULTS = FOLDER / "results.csv"
RIDGE = 0.01
#: Federated, each with step_size="auto".
METHODS = ("des-mr", "des-c", "zo-nsgd")
ROUNDS, ITERATIONS = 150, 100
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
    yield "pooled (lifelines)", by_lifelines(data, RIDGE)
    stratum = np.zeros(data[1].size)
    for number, rows in enumerate(sites):
        stratum[rows] = number
    yield "stratified (lifelines)", by_lifelines(data, RIDGE, stratum)
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


def table(rows: Rows) -> None:
    """The means over splits; of single sites, those over all of them."""
    fits = grouped(rows, lambda row: re.sub(r"^site \d+", "one region", row["fit"]))
    best = {
        name: {row["split"]: float(row[name]) for row in fits[f"{name} (lifelines)"]}
        for name in ("pooled", "stratified")
    }
    print("| fit | excess, pooled | excess, stratified | largest difference | concordance |")
    print("| --- | --- | --- | --- | --- |")
    for fit, group in fits.items():
        excess = [
            mean(float(row[name]) - best[name][row["split"]] for row in group) for name in best
        ]
        distance = mean(float(row["distance"]) for row in group)
        numbers = " | ".join(f"{number:.2g}" for number in (*excess, distance))
        print(f"| {fit} | {numbers} | {concordances(group)} |")


if __name__ == "__main__":
    main(__doc__, "tcga_brca.csv", RESULTS, FIELDS, SPLITS, run, table)
