"""Results that were never run, for tests of the report: smooth curves towards a given end."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from desopt.report.results import Results, summarise
from desopt.studies.cases import Case, make_case
from desopt.studies.outcomes import Outcome
from desopt.studies.store import Store

PROBLEMS = ("lr", "nsvm", "lsvm")
DES = ("des", "des-mg", "des-mr")
RIVALS = ("fed-zo-gd", "fed-zo-sgd", "zo-signsgd", "es-csa")
#: Where the methods end, best to worst, as the paper has it: DES, Fed-ZO-SGD, ..., ES-CSA.
ENDS = dict(zip((*DES, "fed-zo-sgd", "zo-signsgd", "fed-zo-gd", "es-csa"), range(7), strict=True))
STARTS = {"lr": np.log(2), "nsvm": 1.0, "lsvm": 1.0}
FACTS = {"train_rows": 40_000, "test_rows": 10_000, "n": 22, "density": 0.59}


def case(**fields: Any) -> Case:
    """A case of the paper, but for the given fields."""
    usual: dict[str, Any] = {
        "data": "ijcnn1", "problem": "lr", "method": "des", "step_size": 1.0, "run": 0,
        "iterations": 100, "budget": 1000.0, "points": 20,
    }  # fmt: skip
    return make_case(**{**usual, **fields})


def outcome(
    case: Case, end: float = 0.2, rate: float = 6.0, luck: float = 0.0, overfit: float = 0.0,
    **fields: Any,
) -> Outcome:  # fmt: skip
    """A finished case whose training loss falls from its start by exp(-rate t) to ``end``."""
    rng = np.random.default_rng(int(case.id, 16))
    rounds, each = (13, 3.0) if case.method == "es-csa" else (40, 1.0)
    t = np.unique(np.linspace(0, rounds, case.points + 1).round())
    start = STARTS[case.problem]
    end *= 1 + luck * rng.standard_normal()
    loss = end + (start - end) * np.exp(-rate * t / rounds)
    error = 0.5 * loss / start
    test_error = 1.02 * error + overfit * t / rounds
    curve = {
        "round": t, "paper_round": t * each, "evaluations": 1010 * t, "samples": 1e6 * each * t,
        "bytes_up": 130 * t, "bytes_down": 2000 * t, "seconds": 0.021 * t * rng.uniform(0.9, 1.1),
        "train_loss": loss, "train_error": (error * 40_000).round() / 40_000,
        "test_loss": 1.02 * loss, "test_error": (test_error * 10_000).round() / 10_000,
    }  # fmt: skip
    usual: dict[str, Any] = {
        "case": case, "status": "done", "message": "", "rounds": rounds, **FACTS,
        "generated": case.data.endswith("-like"), "origin": "made up", "seconds": 0.84,
        "cpu_seconds": 0.9, "wall_seconds": 1.0, "version": "0.1.0", "seed": case.run,
        "finished": "2026-01-02T03:04:05+00:00", "machine": "a machine", "curve": curve,
    }  # fmt: skip
    return Outcome(**{**usual, **fields})


def curves(
    data: Iterable[str] = ("ijcnn1",),
    ends: Mapping[str, float] = ENDS,
    steps: Iterable[float] = (0.1, 1.0, 10.0),
    runs: int = 1,
    spread: float = 1.0,
    **more: Any,
) -> list[Outcome]:
    """Every method on the three problems.

    ``ends`` are in hundredths of the start; alpha = 0.1 and 10 end by ``spread`` above alpha = 1.
    """
    return [
        outcome(
            case(data=d, problem=p, method=m, step_size=a, run=run),
            end=STARTS[p] * (0.2 + ends[m] / 100 + spread / 100 * abs(np.log10(a))),
            rate=8 - ends[m] / 10,
            **more,
        )
        for d in data for p in PROBLEMS for m in ends for a in steps for run in range(runs)
    ]  # fmt: skip


def sweep(
    name: str,
    ends: Mapping[Any, float],
    data: Iterable[str] = ("ijcnn1",),
    runs: int = 1,
    **more: Any,
) -> list[Outcome]:
    """des-mr over one setting; ``ends`` as in ``curves``."""
    return [
        outcome(
            case(data=d, problem=p, method="des-mr", run=run, **{name: value}),
            end=STARTS[p] * (0.2 + end / 100),
            **more,
        )
        for d in data for p in PROBLEMS for value, end in ends.items() for run in range(runs)
    ]  # fmt: skip


def one_item(name: str, outcomes: Sequence[Outcome]) -> Results:
    """The results of a study with one item."""
    return Results({name: summarise(outcomes)}, outcomes, (), {})


def write(folder: Path, items: Mapping[str, Iterable[Outcome]]) -> Path:
    """A folder as ``desopt suite`` leaves it."""
    outcomes = {name: list(found) for name, found in items.items()}
    with Store.open(folder, create=True) as store:
        store.add({name: [o.case for o in found] for name, found in outcomes.items()})
        store.note("command", "desopt suite paper --scale small")
        keys = store.keys()
        every = {o.case.id: o for found in outcomes.values() for o in found}
        with store.transaction():
            for o in every.values():
                _record(store, keys[o.case.id], o)
    return folder


def _record(store: Store, key: int, o: Outcome) -> None:
    kept = ("status", "message", "rounds", "seconds", "cpu_seconds", "wall_seconds", "version")
    result: dict[str, Any] = {name: getattr(o, name) for name in (*kept, "seed", "finished")}
    result["machine_key"] = store.shared_key("machines", {"description": o.machine})
    if o.status == "failed":
        store.record(key, result, ())
        return
    facts = {name: getattr(o, name) for name in (*FACTS, "generated", "origin")}
    result["data_key"] = store.shared_key("data_sets", {"name": o.case.data, **facts})
    c = o.curve
    result["paper_rounds_each"] = float(c["paper_round"][-1] / c["round"][-1])
    names = ("round", "evaluations", "samples", "bytes_up", "bytes_down")
    counts = [c[name].astype(int).tolist() for name in names]
    parts: list[list[Any]] = [(1e6 * c["seconds"]).round().astype(int).tolist()]
    for part, rows in (("train", o.train_rows), ("test", o.test_rows)):
        parts.append([None if np.isnan(v) else v for v in c[f"{part}_loss"].tolist()])
        parts.append((rows * c[f"{part}_error"]).round().astype(int).tolist())
    store.record(key, result, zip(*counts, *parts, strict=True))
