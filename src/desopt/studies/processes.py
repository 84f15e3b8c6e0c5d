"""A worker process, as seen by its parent."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from desopt.engines.processes.python import python
from desopt.studies.cases import Case
from desopt.system.parallel import THREAD_VARIABLES
from desopt.system.support import require_processes
from desopt.system.watched import Watched

_MAIN = "from desopt.studies.worker import main; main(*sys.argv[1:])"
# The parallelism is over cases.
_ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1")


class ProcessDied(RuntimeError):
    """The worker process died before it answered."""


class WorkerProcess:
    """A child process that runs cases. It ends with its parent, along with its own children."""

    def __init__(self, data_dir: str | None = None) -> None:
        require_processes("a study", "desopt.minimize runs anywhere")
        self._watched = Watched(
            [*python(_MAIN), *([data_dir] if data_dir else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
            env={**os.environ, **_ONE_THREAD},
        )  # fmt: skip
        self._popen = self._watched.popen
        self.machine = ""

    def run(self, case: Case) -> dict[str, Any]:
        """The result of ``worker.CaseRunner.run``, or {"error": message}."""
        assert self._popen.stdin is not None
        if not self.machine:
            self.machine = self._hello()
        with suppress(OSError):  # broken pipe: _answer raises ProcessDied
            self._popen.stdin.write(json.dumps(asdict(case)) + "\n")
            self._popen.stdin.flush()
        return self._answer()

    def _hello(self) -> str:
        """The first line of a new process. If it cannot start, no case is to blame."""
        try:
            return str(self._answer()["machine"])
        except ProcessDied as error:
            raise RuntimeError(f"a worker process cannot start: {error}") from error

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
        """Kill it; a thread waiting for its answer gets ``ProcessDied``."""
        self._watched.stop()

    def close(self) -> None:
        """Wait for its end and close its pipes; called by the thread that talks to it."""
        self._watched.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            with suppress(OSError):  # unread input
                if pipe is not None:
                    pipe.close()
