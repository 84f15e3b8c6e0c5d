"""Who answered when: a federation's log beside its journal, and its status from both.

The journal has what a run is rebuilt from: the answers. What only its operator wants to know, names
of sites, seconds, refusals and failures, is in ``JOURNAL.sites``: a line of JSON for every round,
and one for the beginning and the end of every start. Losing the file loses nothing else.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from desopt.run import journal as journals

#: What the log's name has more than the journal's.
SUFFIX = ".sites"

#: Rounds that a status lists.
RECENT = 10


class SiteLog:
    """The log of a journal; without a journal, nothing is written."""

    def __init__(self, journal: str | os.PathLike[str] | None) -> None:
        self._path = None if journal is None else Path(f"{os.fspath(journal)}{SUFFIX}")

    def write(self, **entry: Any) -> None:
        """Append a line, with the time."""
        if self._path is not None:
            line = json.dumps({"time": round(time.time(), 3)} | entry)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def read(self) -> list[dict[str, Any]]:
        """All lines; one that was cut off is left out."""
        if self._path is None or not self._path.is_file():
            return []
        found = []
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and isinstance(entry.get("time"), int | float):
                found.append(entry)
        return found

    def names(self) -> dict[int, str]:
        """The sites of workers, as they have called themselves last."""
        found: dict[int, str] = {}
        for entry in self.read():
            found |= {int(worker): str(site) for worker, site in entry.get("sites", {}).items()}
        return found


def round_line(row: Mapping[str, Any], rounds: int, report: Mapping[str, Any]) -> str:
    """A finished round in one line: ``report`` is the federation's."""
    loss = "" if math.isnan(row["loss"]) else f" loss {row['loss']:.5g}"
    answered, missing = len(report["answered"]), report["missing"]
    line = f"round {row['round']}/{rounds}{loss} answered {answered} of {answered + len(missing)}"
    if missing:
        silent = (f"{report['sites'][w]}, {_silent(s)}" for w, s in missing.items())
        line += f", missing: {len(missing)} ({'; '.join(silent)})"
    return line


def _silent(seconds: float | None) -> str:
    return "never heard of" if seconds is None else f"{seconds:.0f} s"


# --- the status ------------------------------------------------------------------------------


def status(journal: str | os.PathLike[str]) -> dict[str, Any]:
    """Rounds, loss, bytes, refusals and sites of a federated run, also while it is running."""
    with warnings.catch_warnings(action="ignore"):  # a record still being written
        contents = journals.read(journal)
    log = SiteLog(journal)
    entries, names = log.read(), log.names()
    reports = {e["round"]: e for e in entries if isinstance(e.get("round"), int)}
    starts = [e for e in entries if "begin" in e]
    ends = [e for e in entries if "end" in e]
    workers = contents.header["config"]["workers"]
    rows, answered = contents.rows, dict[int, list[int]]()
    for number, given in enumerate(contents.answers, 1):
        for answer in given:
            answered.setdefault(answer.worker, []).append(number)
    losses = [row["loss"] for row in rows if not math.isnan(row["loss"])]
    refused: dict[str, int] = {}
    for entry in reports.values():
        for reason, count in entry.get("refused", {}).items():
            refused[reason] = refused.get(reason, 0) + count
    # a restart begins with another line than the end before it
    ended = ends[-1] if ends and entries[-1] is ends[-1] else None
    return {
        "method": contents.header["config"]["method"]["name"],
        "rounds": len(rows),
        "of": starts[-1]["begin"] if starts else None,
        "starts": len(starts),
        "ended": None if ended is None else ended["end"],
        "initial_loss": contents.header["initial_fun"],
        "loss": losses[-1] if losses else None,
        "bytes_up": rows[-1]["bytes_up"] if rows else 0,
        "bytes_down": rows[-1]["bytes_down"] if rows else 0,
        "refused": refused,
        "sites": [
            _site(worker, names.get(worker, f"worker {worker}"), answered.get(worker, []), reports)
            for worker in range(workers)
        ],
        "recent": [
            _round(number, contents, reports.get(number), names)
            for number in range(max(1, len(rows) - RECENT + 1), len(rows) + 1)
        ],
        "troubles": [line for e in entries[-RECENT:] for line in e.get("troubles", ())],
        "metrics": {} if ended is None else ended.get("metrics", {}),
        "last": entries[-1]["time"] if entries else None,
    }


def _site(
    worker: int, name: str, rounds: Sequence[int], reports: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """A worker that has answered in these rounds."""
    known = [reports[t] for t in rounds if t in reports]
    waits = [e["answered"][str(worker)] for e in known if str(worker) in e.get("answered", {})]
    last = reports.get(rounds[-1], {}).get("time") if rounds else None
    return {
        "worker": worker,
        "site": name,
        "answered": len(rounds),
        "last_round": rounds[-1] if rounds else None,
        "last_time": last,
        "seconds": median(waits) if waits else None,
    }


def _round(
    number: int, contents: Any, report: Mapping[str, Any] | None, names: Mapping[int, str]
) -> dict[str, Any]:
    row, before = contents.rows[number - 1], contents.rows[number - 2] if number > 1 else {}
    there = {answer.worker for answer in contents.answers[number - 1]}
    absent = [int(w) for w in report["missing"]] if report else None
    if absent is None and contents.header["config"]["participation"] == 1.0:
        absent = [w for w in range(contents.header["config"]["workers"]) if w not in there]
    return {
        "round": number,
        "loss": None if math.isnan(row["loss"]) else row["loss"],
        "answered": len(there),
        "missing": [names.get(w, f"worker {w}") for w in absent or ()],
        "bytes_up": row["bytes_up"] - before.get("bytes_up", 0),
        "bytes_down": row["bytes_down"] - before.get("bytes_down", 0),
        "time": report["time"] if report else None,
    }
