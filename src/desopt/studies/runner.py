"""Run the cases of a study in parallel processes, shared with other sessions on the folder."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from desopt.studies.cases import Case
from desopt.studies.estimates import Estimates, work
from desopt.studies.leases import Session
from desopt.studies.processes import ProcessDied, WorkerProcess
from desopt.studies.store import Store

#: Seconds between heartbeats, and between checks of the cases that other sessions run.
BEAT, POLL = 10.0, 1.0
#: A case on the loaded data set goes first if its work is at least this share of the largest.
PREFER_LOADED = 0.5
#: Attempts to run a case whose process dies.
ATTEMPTS = 2


@dataclass
class RunStatus:
    """The state of a run; updated while the cases run."""

    cases: dict[str, Case]  # by id
    estimates: Estimates
    done: int = 0
    failed: int = 0
    running: dict[str, tuple[Case, float]] = field(default_factory=dict)  # with the start time
    elsewhere: int = 0  # cases that other sessions run
    finished: set[str] = field(default_factory=set)  # ids
    error: str = ""  # of a failed case

    @property
    def total(self) -> int:
        return len(self.cases)

    def seconds_left(self, jobs: int) -> float | None:
        """Expected seconds until the end; None while nothing has been measured."""
        left = self.estimates.total(c for id, c in self.cases.items() if id not in self.finished)
        if left is None:
            return None
        now = time.monotonic()
        begun = 0.0
        for case, start in list(self.running.values()):
            begun += min(now - start, self.estimates.seconds(case) or 0.0)
        return max(0.0, left - begun) / jobs


class CaseQueue:
    """The cases to run, those with the most work first."""

    def __init__(self, session: Session, cases: Iterable[Case], data_dir: str | None) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._work = {case: work(case, data_dir) for case in cases}
        #: By data set, those with the most work last.
        self._waiting: dict[str, list[Case]] = {}
        self._put(sorted(self._work, key=lambda case: self._work[case]))
        self._taken: list[Case] = []
        self._polled = 0.0

    def next(self, loaded: str | None) -> tuple[Case | None, bool]:
        """A case leased to this session, if there is one; and whether one may come free later.

        ``loaded``: the data set that the caller's process has in memory.
        """
        with self._lock:
            self._return_taken()
            while self._waiting:
                case = self._pick(loaded)
                claim = self._session.claim(case)
                if claim == "mine":
                    return case, True
                if claim == "taken":
                    self._taken.append(case)
            return None, bool(self._taken)

    def _put(self, cases: Iterable[Case]) -> None:
        for case in cases:
            self._waiting.setdefault(case.data, []).append(case)

    def _pick(self, loaded: str | None) -> Case:
        most = {data: self._work[cases[-1]] for data, cases in self._waiting.items()}
        largest = max(most, key=lambda data: most[data])
        stays = most.get(loaded or "", 0.0) >= PREFER_LOADED * most[largest]
        chosen = loaded if loaded is not None and stays else largest
        case = self._waiting[chosen].pop()
        if not self._waiting[chosen]:
            del self._waiting[chosen]
        return case

    def _return_taken(self) -> None:
        """Check the cases of other sessions again: they may be finished, or free."""
        if not self._waiting and time.monotonic() - self._polled > POLL:
            self._polled = time.monotonic()
            again, self._taken = self._taken, []
            self._put(reversed(again))

    @property
    def elsewhere(self) -> int:
        """The number of cases that other sessions run."""
        with self._lock:
            return len(self._taken)


class Slot(threading.Thread):
    """A worker process and the thread that feeds it with cases."""

    def __init__(self, queue: CaseQueue, session: Session, status: RunStatus) -> None:
        super().__init__(daemon=True)
        self._queue, self._session, self._status = queue, session, status
        self._process: WorkerProcess | None = None
        self._stopped = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            if self._process is not None:
                self._process.close()

    def stop(self) -> None:
        """Kill the process; its case is given back."""
        self._stopped.set()
        process = self._process  # the thread may set it to None meanwhile
        if process is not None:
            process.kill()

    def _work(self) -> None:
        loaded = None
        while not self._stopped.is_set():
            case, more = self._queue.next(loaded)
            if case is not None:
                self._run(case)
                loaded = case.data
            elif more:
                self._stopped.wait(POLL)
            else:
                return

    def _run(self, case: Case) -> None:
        began = time.monotonic()
        self._status.running[case.id] = case, began
        try:
            machine, reply = self._try(case)
            stored = not self._stopped.is_set() and self._session.finish(case, machine, reply)
            if stored and "error" not in reply:
                self._status.estimates.learn(case, time.monotonic() - began)
        finally:
            del self._status.running[case.id]

    def _try(self, case: Case) -> tuple[str, dict[str, object]]:
        message = ""
        for _ in range(ATTEMPTS):
            if self._process is None:
                self._process = WorkerProcess(self._status.estimates.data_dir)
            if self._stopped.is_set():  # checked once stop() can see the process
                break
            try:
                reply = self._process.run(case)
                return self._process.machine, reply
            except ProcessDied as error:
                self._process.close()
                message, self._process = str(error), None
                if self._stopped.is_set():
                    break
        return "", {"error": message}


def run(
    store: Store,
    cases: Sequence[Case],
    estimates: Estimates,
    jobs: int,
    watch: Callable[[RunStatus], None] = lambda status: None,
) -> RunStatus:
    """Run the cases that have no result yet, ``jobs`` at a time.

    ``watch`` is called twice a second. Ctrl-C kills the processes and gives their cases back;
    finished results are kept.
    """
    session = Session(store)
    status = RunStatus({case.id: case for case in cases}, estimates)
    session.beat()
    queue = CaseQueue(session, cases, estimates.data_dir)
    slots = [Slot(queue, session, status) for _ in range(min(jobs, len(cases)))]
    try:
        for slot in slots:
            slot.start()
        _supervise(store, session, queue, slots, status, watch)
    finally:
        for slot in slots:
            slot.stop()
        for slot in slots:
            if slot.is_alive():  # else it has ended, or could not be started
                slot.join()
        with suppress(sqlite3.Error):  # disk full: the other sessions notice that we are gone
            session.leave()
    for error in (slot.error for slot in slots if slot.error):
        raise error
    return status


def _supervise(
    store: Store,
    session: Session,
    queue: CaseQueue,
    slots: Sequence[Slot],
    status: RunStatus,
    watch: Callable[[RunStatus], None],
) -> None:
    """Send heartbeats and update the status until the slots are done or one of them fails."""
    beaten = time.monotonic()
    while True:
        began = time.monotonic()
        working = any(slot.is_alive() for slot in slots)
        store.ensure_in_place()
        _count(store, status)
        status.elsewhere = queue.elsewhere
        watch(status)
        if not working or any(slot.error for slot in slots):
            return
        if time.monotonic() - beaten > BEAT:
            beaten = time.monotonic()
            session.beat()
        # Thousands of cases take a while to count: leave the processor to the workers. If it took
        # very long, we were stopped (Ctrl-Z), or the machine asleep: others await a heartbeat.
        _wait(slots, min(max(0.5, 20 * (time.monotonic() - began)), BEAT))


def _wait(slots: Iterable[Slot], seconds: float) -> None:
    """At most so long, but not longer than the slots work."""
    end = time.monotonic() + seconds
    for slot in slots:
        slot.join(max(0.0, end - time.monotonic()))


def _count(store: Store, status: RunStatus) -> None:
    sql = "SELECT id, status, message FROM results JOIN cases ON key = case_key"
    ended = [row for row in store.query(sql) if row["id"] in status.cases]
    failures = [row["message"] for row in ended if row["status"] == "failed"]
    status.finished = {row["id"] for row in ended}
    status.done, status.failed = len(ended) - len(failures), len(failures)
    status.error = failures[0] if failures else ""
