"""Sessions that share a folder, and those that die."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.small_studies import CASE, SHORT, reply_of

from desopt.studies import leases, runner
from desopt.studies.estimates import Estimates
from desopt.studies.leases import Session
from desopt.studies.store import Store


def gone() -> int:
    """The number of a process that is no more."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_claims_are_exclusive_and_end_with_their_session(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE, SHORT]})
        with Store.open(tmp_path, create=True) as other:
            one, two = Session(store), Session(other)
            assert (one.claim(CASE), two.claim(CASE), two.claim(SHORT)) == ("mine", "taken", "mine")
            two.finish(SHORT, "", reply_of([1.0]))
            assert one.claim(SHORT) == "finished"
            two.beat()  # the other one lives: nothing changes
            assert two.claim(CASE) == "taken"
            one.leave()
            assert two.claim(CASE) == "mine"


def test_a_failure_may_be_told_in_what_no_encoding_has(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE]})
        assert Session(store).finish(CASE, "", {"error": "OSError: no file a\udcffb"})
        assert [outcome.message for outcome in store.read()] == ["OSError: no file a?b"]


def disguise(store: Store, session: Session, process: Any, beat: Any = 0.0) -> None:
    """Let a session look like that of another process."""
    text = process if isinstance(process, str) else json.dumps(process)
    sql = "UPDATE sessions SET process = ?, beat = ? WHERE key = ?"
    store.query(sql, [text, beat, session._key])


def own(**changed: Any) -> dict[str, Any]:
    return leases._identity(os.getpid()) | changed


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("reused", [False, True])
def test_a_process_that_died_here_is_noticed_at_once(tmp_path: Path, reused: bool) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE]})
        killed, here = Session(store), Session(store)
        killed.claim(CASE)
        # Its number is free, or another process has it by now.
        disguise(store, killed, own(started="7") if reused else own(pid=gone()), time.time() + 1e9)
        assert here.claim(CASE) == "taken"
        here.beat()
        assert here.claim(CASE) == "mine"


def test_without_start_times_the_number_tells(tmp_path: Path) -> None:
    assert leases._is_gone(json.dumps(own(pid=gone(), started="")))
    for pid in (os.getpid(), 1, 0, -1, 10**30):
        assert not leases._is_gone(json.dumps(own(pid=pid, started="")))


FAR = {"host": "far", "pid": 1, "started": "7"}


@pytest.mark.parametrize("ahead", [-(10.0**9), 0.0, 30 * 86_400.0])
@pytest.mark.parametrize("process", [FAR, own(), "no json", "[]", '{"pid": "x"}', "[" * 10**5])
def test_who_falls_silent_is_dead_whatever_its_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float, process: Any
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE, SHORT]})
        away, here = Session(store), Session(store)
        away.claim(CASE)
        disguise(store, away, process, time.time() + ahead)
        for _ in range(5):  # it lives, however long this takes
            here.beat()
            assert here.claim(CASE) == "taken"
            away.beat()
            now[0] += 0.9 * leases.LEASE
        here.beat()
        now[0] += leases.LEASE
        here.beat()
        assert here.claim(CASE) == "taken"
        now[0] += 1.0
        here.beat()
        assert here.claim(CASE) == "mine"
        away.beat()  # it was only asleep
        assert away.finish(CASE, "", reply_of([1.0]))
        assert here.claim(CASE) == "finished"
        assert not here.finish(CASE, "", reply_of([2.0]))


def test_machines_of_one_name_are_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"/proc/sys/kernel/random/boot_id": "one"}
    monkeypatch.setattr(leases, "_read_text", lambda path: found.get(path, ""))
    before = leases._identity(1)["host"]
    found["/proc/sys/kernel/random/boot_id"] = "two"
    assert leases._identity(1)["host"] != before


def test_failures_are_tried_again_only_where_asked(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE, SHORT]})
        session = Session(store)
        session.finish(CASE, "", {"error": "no"})
        session.finish(SHORT, "", {"error": "no"})
        leases.forget_failures(store, [CASE])
        assert (session.claim(CASE), session.claim(SHORT)) == ("mine", "finished")


def test_a_session_ends_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(slot: runner.Slot) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(runner.Slot, "start", refused)
    with Store.open(tmp_path, create=True) as store:
        store.add({"curves": [CASE]})
        with pytest.raises(RuntimeError, match="can't start"):
            runner.run(store, [CASE], Estimates(None), jobs=2)
        assert not store.query("SELECT * FROM sessions")
