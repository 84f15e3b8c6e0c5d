"""The main program of a worker process: a case per line of JSON in, its result out."""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
from queue import SimpleQueue
from typing import Any

from desopt import plugins
from desopt.studies.cases import Case, from_mapping
from desopt.studies.datasets import digest
from desopt.studies.execute import Alone, Ground, Split, execute, warm_up
from desopt.studies.problems import NO_DATA, code


class CaseRunner:
    """Runs cases one by one. Keeps the last data set in memory and the compiled methods warm."""

    def __init__(self, data_dir: str | None) -> None:
        self._data_dir = data_dir
        self._loaded: tuple[tuple[str, int | None, str | None], Split] | None = None
        self._warm: set[tuple[Any, ...]] = set()

    def run(self, case: Case) -> dict[str, Any]:
        self._check_code(case)
        ground: Ground = Alone(case.problem) if case.data == NO_DATA else self._split(case)
        kind = _kernels(case, ground)
        if kind not in self._warm:
            warm_up(case, ground)
            self._warm.add(kind)
        return execute(case, ground)

    def _check_code(self, case: Case) -> None:
        """A Python objective must be the one whose digest is in the case."""
        if case.code is not None and case.code != code(case.problem):
            raise ValueError(
                f"{case.problem} has changed since the study began; repeat the command to run the "
                "new code"
            )

    def _split(self, case: Case) -> Split:
        wanted = case.data, case.rows, case.digest
        if self._loaded is None or self._loaded[0] != wanted:
            self._loaded = None  # free the memory before loading
            self._check(case)
            split = Split.load(case.data, case.rows, self._data_dir)
            self._check(case)  # unchanged while loading
            self._loaded = wanted, split
        return self._loaded[1]

    def _check(self, case: Case) -> None:
        """The file must be the one whose digest is in the case."""
        if case.digest not in (None, found := digest(case.data, self._data_dir)):
            raise ValueError(
                f"the data {case.data!r} have changed since the study began: their digest was "
                f"{case.digest}, now it is {found}; repeat the command to run on the new data"
            )


def _kernels(case: Case, ground: Ground) -> tuple[Any, ...]:
    """What decides which compiled functions a case calls."""
    layout = type(ground.train.X) if isinstance(ground, Split) else None
    parts = case.problem, case.method, case.sampler, case.correction, case.aggregate
    return layout, *parts, case.step_rule  # a rule has kernels of its own


def main(data_dir: str | None = None) -> None:
    """Serve until the parent is gone; then exit at once, even in the middle of a case."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # anything printed goes to stderr, not between the answers
    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    plugins.load()  # those of the parent, named in the environment
    runner = CaseRunner(data_dir)
    _say(out, {"machine": machine()})
    while True:
        case = from_mapping(json.loads(requests.get()))
        try:
            reply = runner.run(case)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        _say(out, reply)


def _listen(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _say(out: Any, reply: dict[str, Any]) -> None:
    out.write(json.dumps(reply) + "\n")
    out.flush()


def machine() -> str:
    """Processor, cores, system and versions of the numerical libraries, in one line."""
    import numba
    import numpy
    import scipy

    libraries = ((name.__name__, name.__version__) for name in (numpy, scipy, numba))
    parts = (
        _processor(),
        f"{os.cpu_count()} cores",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        *(f"{name} {version}" for name, version in libraries),
    )
    return ", ".join(parts)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
