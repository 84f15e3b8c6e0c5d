"""Run the cases of a study in parallel processes, together with others who do the same."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from desopt.studies.cases import Case
from desopt.studies.leases import Session
from desopt.studies.processes import ProcessDied, WorkerProcess
from desopt.studies.store import Store

#: Seconds between looks at the file: for the beat, and for cases that others have claimed.
BEAT, POLL = 10.0, 1.0
#: A case of the data set that is loaded goes first if it is this long, compared with the longest.
STAY = 0.5
#: How often a case is tried whose process dies.
ATTEMPTS = 2


@dataclass
class Status:
    """How far the cases have come; updated while they run."""

    expected: dict[str, float]  # seconds by case id, of the cases to run
    total: int
    done: int = 0
    failed: int = 0
    running: dict[str, tuple[Case, float]] = field(default_factory=dict)
    elsewhere: int = 0
    finished: set[str] = field(default_factory=set)
    spent: float = 0.0  # seconds, of the cases that were finished here
    worth: float = 0.0  # what was expected of these
    why: str = ""  # the message of a case that failed

    def seconds_left(self, jobs: int) -> float | None:
        """From the expected times, corrected by how true they were so far."""
        if not self.worth:
            return None
        left = sum(s for id, s in self.expected.items() if id not in self.finished)
        now = time.monotonic()
        begun = sum(min(now - at, self.expected[id]) for id, (_, at) in self.running.items())
        return max(0.0, left * self.spent / self.worth - begun) / jobs


class Queue:
    """Cases still to run, the longest first."""

    def __init__(self, session: Session, expected: dict[Case, float]) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._waiting = sorted(expected, key=lambda case: -expected[case])
        self._expected = expected
        self._taken: list[Case] = []
        self._polled = 0.0

    def next(self, loaded: str | None) -> tuple[Case | None, bool]:
        """A case that is ours now, if there is one; and whether there may be one later."""
        with self._lock:
            self._look_again()
            while self._waiting:
                case = self._pick(loaded)
                claim = self._session.claim(case)
                if claim == "mine":
                    return case, True
                if claim == "taken":
                    self._taken.append(case)
            return None, bool(self._taken)

    def _pick(self, loaded: str | None) -> Case:
        least = STAY * self._expected[self._waiting[0]]
        for i, case in enumerate(self._waiting):
            if self._expected[case] < least:
                break
            if case.data == loaded:
                return self._waiting.pop(i)
        return self._waiting.pop(0)

    def _look_again(self) -> None:
        """What others had claimed may be finished by now, or free again."""
        if not self._waiting and time.monotonic() - self._polled > POLL:
            self._polled = time.monotonic()
            self._waiting, self._taken = self._taken, []

    @property
    def elsewhere(self) -> int:
        """How many cases others have claimed."""
        with self._lock:
            return len(self._taken)


class Slot(threading.Thread):
    """One process, and the thread that gives it cases."""

    def __init__(
        self, queue: Queue, session: Session, status: Status, data_dir: str | None
    ) -> None:
        super().__init__(daemon=True)
        self._queue, self._session, self._status = queue, session, status
        self._data_dir = data_dir
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
        """End the process, whatever it does; its case goes back."""
        self._stopped.set()
        if self._process is not None:
            self._process.kill()

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
            if not self._stopped.is_set() and self._session.finish(case, machine, reply):
                self._status.spent += time.monotonic() - began
                self._status.worth += self._status.expected[case.id]
        finally:
            del self._status.running[case.id]

    def _try(self, case: Case) -> tuple[str, dict[str, object]]:
        message = ""
        for _ in range(ATTEMPTS):
            if self._process is None:
                self._process = WorkerProcess(self._data_dir)
            if self._stopped.is_set():  # asked after the process is known: stop() ends it, or we do
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
    expected: dict[Case, float],
    jobs: int,
    data_dir: str | None = None,
    watch: Callable[[Status], None] = lambda status: None,
) -> Status:
    """Run the cases that have no result yet, ``jobs`` at a time; ``expected``: their seconds.

    ``watch`` is called twice a second. Ctrl-C ends the processes and gives their cases
    back; what is finished stays.
    """
    session = Session(store)
    status = Status({case.id: seconds for case, seconds in expected.items()}, len(expected))
    session.beat()
    queue = Queue(session, expected)
    slots = [Slot(queue, session, status, data_dir) for _ in range(min(jobs, len(expected)))]
    try:
        for slot in slots:
            slot.start()
        _attend(store, session, queue, slots, status, watch)
    finally:
        for slot in slots:
            slot.stop()
        for slot in slots:
            slot.join()
        with suppress(sqlite3.Error):  # the disk is full: that this process is gone will do
            session.leave()
    for error in (slot.error for slot in slots if slot.error):
        raise error
    return status


def _attend(
    store: Store,
    session: Session,
    queue: Queue,
    slots: Iterable[Slot],
    status: Status,
    watch: Callable[[Status], None],
) -> None:
    """Beat, count and show until the slots are done, or one of them fails."""
    beaten = time.monotonic()
    while True:
        working = any(slot.is_alive() for slot in slots)
        _count(store, status)
        status.elsewhere = queue.elsewhere
        watch(status)
        if not working or any(slot.error for slot in slots):
            return
        if time.monotonic() - beaten > BEAT:
            beaten = time.monotonic()
            session.beat()
        time.sleep(0.5)


def _count(store: Store, status: Status) -> None:
    sql = "SELECT id, status, message FROM results JOIN cases ON key = case_key"
    ended = [row for row in store.query(sql) if row["id"] in status.expected]
    failures = [row["message"] for row in ended if row["status"] == "failed"]
    status.finished = {row["id"] for row in ended}
    status.done, status.failed = len(ended) - len(failures), len(failures)
    status.why = failures[0] if failures else ""
