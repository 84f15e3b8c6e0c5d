"""A process that runs cases, seen from the side that gives them out."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from desopt.engines.processes.watched import Watched, python
from desopt.studies.cases import Case

_MAIN = "from desopt.studies.worker import main; main(*sys.argv[1:])"
# One thread each: the cases are what runs in parallel.
_ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB")
}


class ProcessDied(RuntimeError):
    """The process that ran a case is gone, without an answer."""


class WorkerProcess:
    """A process of our own. It ends when this one does, with all that it has started."""

    def __init__(self, data_dir: str | None = None) -> None:
        self._watched = Watched(
            [*python(_MAIN), *([data_dir] if data_dir else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
            env={**os.environ, **_ONE_THREAD},
        )  # fmt: skip
        self._popen = self._watched.popen
        self.machine = ""

    def run(self, case: Case) -> dict[str, Any]:
        """What ``worker.Desk.run`` gives for the case, or {"error": message}."""
        assert self._popen.stdin is not None
        if not self.machine:
            self.machine = self._hello()
        with suppress(OSError):  # it is gone: the answer says so
            self._popen.stdin.write(json.dumps(asdict(case)) + "\n")
            self._popen.stdin.flush()
        return self._answer()

    def _hello(self) -> str:
        """A process that cannot even start is no fault of the case."""
        try:
            return str(self._answer()["machine"])
        except ProcessDied as error:
            raise RuntimeError(f"a process for the cases cannot start: {error}") from error

    def _answer(self) -> dict[str, Any]:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line.endswith("\n"):
            code = self._watched.wait()
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            raise ProcessDied(f"the process ended {how}; was it killed, or out of memory?")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        """End it now; whoever waits for its answer gets ``ProcessDied``."""
        self._watched.stop()

    def close(self) -> None:
        """End it and let its pipes go; for the thread that talks to it."""
        self._watched.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            with suppress(OSError):  # there may be something that it did not read
                if pipe is not None:
                    pipe.close()
