"""Nothing outlives a run, however it ends; and what the parent is like does not matter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from helpers.family import freeze, hold_the_gil, start_family
from numpy.typing import NDArray

import desopt
from desopt.contract.types import Task
from desopt.engines.processes import messages, python
from desopt.engines.processes.messages import Channel
from desopt.methods.des import DES
from desopt.system import watched

pytestmark = [
    pytest.mark.kills,
    pytest.mark.skipif(sys.platform != "linux", reason="uses Linux's means"),
]

Vector = NDArray[np.float64]
TESTS = Path(__file__).parents[1]
SECONDS = 100.0  # for whatever must happen at all

NAMES = {"worker", "subprocess", "session", "daemon", "fork"}
ACTS = {"gil": hold_the_gil, "stopped": freeze}


@dataclass
class Graveyard:
    """The processes that a test's functions have noted."""

    folder: Path

    def __post_init__(self) -> None:
        self.known: dict[int, tuple[str, psutil.Process | None]] = {}

    def look(self) -> None:
        path = self.folder / "pids"
        for line in path.read_text().splitlines() if path.exists() else ():
            name, pid = line.split()
            if int(pid) not in self.known:
                try:
                    self.known[int(pid)] = name, psutil.Process(int(pid))
                except psutil.NoSuchProcess:
                    self.known[int(pid)] = name, None

    def add(self, process: psutil.Process) -> None:
        """Everybody below this process, its watchers too."""
        self.look()
        for child in filter(is_alive, process.children(recursive=True)):
            self.known.setdefault(child.pid, ("watcher", child))

    def wait_for_family(self, families: int = 1) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            self.look()
            names = [name for name, _ in self.known.values()]
            if all(names.count(name) >= families for name in NAMES):
                return
            time.sleep(0.01)
        raise TimeoutError(f"only {sorted(names)} were started")

    def alive(self, *, without: tuple[str, ...] = ()) -> list[str]:
        """Who is left after a while; empty as soon as nobody is."""
        self.look()
        end = time.monotonic() + SECONDS
        while True:
            left = [name for name in self.running() if name not in without]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.01)

    def running(self) -> list[str]:
        return [name for name, process in self.known.values() if process and is_alive(process)]

    def bury(self) -> None:
        self.look()
        for _, process in self.known.values():
            if process is not None:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


@pytest.fixture
def graveyard(tmp_path: Path) -> Iterator[Graveyard]:
    """A folder for notes; whoever is left is killed, also when the test fails."""
    graveyard = Graveyard(tmp_path)
    yield graveyard
    graveyard.bury()


PARENT = """
import os, signal, sys, threading, time
import numpy as np
folder, how, tests = sys.argv[1:]
sys.path.append(tests)
import desopt
from helpers import family

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here

def setup():
    family.start_family(folder)

def fun(x, batch):
    if len(batch) == 50 and how in ("gil", "stopped", "sleep"):  # a minibatch
        {"gil": family.hold_the_gil, "stopped": family.freeze, "sleep": family.sleep}[how]()
    if len(batch) == 50 and how == "error":
        raise ZeroDivisionError
    time.sleep(0.01)
    return float(np.mean((batch @ x - 1.0) ** 2))

def look(row):
    if how == "forked":  # has a copy of every pipe and socket
        fork = os.fork()
        if fork == 0:
            time.sleep(1000)
            os._exit(0)
        family.note(folder, "sibling", fork)
        signal.pause()
    if how == "exit":
        sys.exit(3)
    if how == "wait":
        open(os.path.join(folder, "waits"), "w").close()
        signal.pause()

def run():
    desopt.minimize(fun, np.zeros(3), np.ones((100, 3)), workers=1, rounds=3, iterations=3,
                    batch_size=50, setup=setup, engine="processes", jobs=1, progress=False,
                    callbacks=[look])

if how == "thread":  # the thread that started the process ends before the process
    how = "sleep"
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
else:
    run()
"""


@pytest.fixture
def parent(graveyard: Graveyard) -> Iterator[Callable[[str], psutil.Popen]]:
    """Starts a run in a process of its own, which is ended with the test."""
    started: list[psutil.Popen] = []
    (graveyard.folder / "parent.py").write_text(PARENT)

    def start(how: str) -> psutil.Popen:
        command = [sys.executable, "parent.py", str(graveyard.folder), how, str(TESTS)]
        with open(graveyard.folder / "stderr", "w") as errors:
            started.append(
                psutil.Popen(command, cwd=graveyard.folder, stderr=errors, start_new_session=True)
            )
        return started[-1]

    yield start
    for process in started:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        process.wait(SECONDS)


# --- kill -9 of the parent -------------------------------------------------------------------


def stop_everybody(process: psutil.Process) -> None:
    """SIGSTOP to all that descend from the process, those who are to watch over it too."""
    for child in process.children(recursive=True):
        child.suspend()


@pytest.mark.parametrize("how", ["sleep", "gil", "stopped", "forked", "thread", "all stopped"])
def test_kill_9_of_the_parent_leaves_nothing(
    graveyard: Graveyard, parent: Callable[[str], psutil.Popen], how: str
) -> None:
    process = parent("wait" if how == "all stopped" else how)
    graveyard.wait_for_family()
    if how == "forked":
        wait_until(lambda: "sibling" in (graveyard.folder / "pids").read_text())
    if how == "all stopped":
        wait_until(lambda: (graveyard.folder / "waits").exists())
        stop_everybody(process)
    graveyard.add(process)
    assert [name for name, _ in graveyard.known.values()].count("watcher") == 1
    process.kill()
    assert graveyard.alive(without=("sibling",)) == []
    if how == "forked":
        assert graveyard.running() == ["sibling"], "what the user has forked is the user's"


def wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end, "this should have happened by now"
        time.sleep(0.01)


def watchers() -> list[psutil.Process]:
    """Those of this process, which may have other children."""
    children = psutil.Process().children()
    return [child for child in children if any("watcher.py" in word for word in child.cmdline())]


def test_kill_9_of_the_watcher_leaves_no_group_and_is_mended(graveyard: Graveyard) -> None:
    """Somebody kills what is to watch: the kernel kills the process, the engine replaces it."""

    def kill(row: desopt.Row) -> None:
        if row["round"] == 1:
            (watcher,) = watchers()
            graveyard.add(watcher)
            watcher.kill()

    def setup() -> Any:
        return subprocess.Popen(["sleep", "1000"])

    def fun(x: Vector, batch: Any, simulator: Any) -> float:
        return least_squares(x, batch)

    with pytest.warns(RuntimeWarning, match="signal 9"):
        result = run(fun, setup=setup, callbacks=[kill], jobs=1)
    assert len(graveyard.known) == 2
    assert graveyard.alive() == []
    assert result.x.tobytes() == expected().x.tobytes()


# --- other ends ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "code"), [("done", 0), ("error", 1), ("exit", 3), ("interrupt", None)]
)
def test_end_of_the_run_leaves_nothing(
    graveyard: Graveyard, parent: Callable[[str], psutil.Popen], how: str, code: int | None
) -> None:
    process = parent("sleep" if how == "interrupt" else how)
    if how == "interrupt":
        graveyard.wait_for_family()
        process.send_signal(signal.SIGINT)
    ended = process.wait(SECONDS)
    assert ended == code or (code is None and ended != 0)
    assert "Interrupted" in (graveyard.folder / "stderr").read_text() or how != "interrupt"
    graveyard.look()
    assert {name for name, _ in graveyard.known.values()} == NAMES
    assert graveyard.alive() == []


X = np.random.default_rng(0).standard_normal((40, 3))


def least_squares(x: Vector, batch: Any) -> float:
    return float(np.mean((batch @ x - 1.0) ** 2))


def run(fun: Any, **settings: Any) -> desopt.Result:
    usual: dict[str, Any] = {
        "workers": 2, "rounds": 3, "iterations": 4, "batch_size": 5, "progress": False,
        "engine": "processes", "eval_every": 0,
    }  # fmt: skip
    return desopt.minimize(fun, np.zeros(3), X, **(usual | settings))


def expected() -> desopt.Result:
    return run(least_squares, engine="serial")


def once(act: Callable[[], None], mark: Path) -> Callable[..., float]:
    """least_squares that does something with the first value of the run."""

    def fun(x: Vector, batch: Any) -> float:
        if not mark.exists():
            mark.touch()
            act()
        return least_squares(x, batch)

    return fun


@pytest.mark.parametrize("how", ["gil", "stopped"])
def test_hung_process_is_replaced_with_all_that_it_started(graveyard: Graveyard, how: str) -> None:
    folder, act = str(graveyard.folder), ACTS[how]

    def hang() -> None:
        start_family(folder)
        act()

    left: list[str] = []
    with pytest.warns(RuntimeWarning, match="no answer in time"):
        result = run(
            once(hang, graveyard.folder / "mark"), jobs=1, round_timeout=6.0, attempts=20,
            callbacks=[lambda row: left.extend(graveyard.alive())],
        )  # fmt: skip
    assert left == []
    assert {name for name, _ in graveyard.known.values()} == NAMES
    assert result.x.tobytes() == expected().x.tobytes()


def segfault() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # without pytest's traceback
    os.kill(os.getpid(), signal.SIGSEGV)


def terminate_group() -> None:
    """As ``kill 0`` at the end of a shell script."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.killpg(0, signal.SIGTERM)
    time.sleep(1000)


def exit_slowly() -> None:
    """A normal exit that takes its time."""
    import atexit

    atexit.register(time.sleep, 1000)
    sys.exit("no licence")


def hang_up() -> None:
    """Close what was not ours, as a program that becomes a daemon does."""
    os.closerange(3, 1000)
    os._exit(6)


DEATHS: list[tuple[Callable[[], None], str]] = [
    (lambda: os._exit(3), "exit code 3"),
    (lambda: sys.exit(4), "exit code 4"),
    (exit_slowly, "exit code 1"),
    (segfault, "signal 11"),
    (terminate_group, "signal 15"),
    (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
]


@pytest.mark.parametrize(("act", "said"), DEATHS, ids=[said for _, said in DEATHS])
def test_exit_code_is_told_and_the_family_is_gone(
    graveyard: Graveyard, act: Callable[[], None], said: str
) -> None:
    folder = str(graveyard.folder)

    def die() -> None:
        start_family(folder)
        act()

    left: list[str] = []
    with pytest.warns(RuntimeWarning) as caught:
        result = run(
            once(die, graveyard.folder / "mark"), jobs=1,
            callbacks=[lambda row: left.extend(graveyard.alive())],
        )  # fmt: skip
    assert len(caught) == 1
    assert f"died ({said}); it was replaced" in str(caught[0].message)
    assert left == []
    assert {name for name, _ in graveyard.known.values()} == NAMES
    assert result.x.tobytes() == expected().x.tobytes()


def test_process_that_hangs_up_is_replaced(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="was replaced"):
        result = run(once(hang_up, tmp_path / "mark"), jobs=1)
    assert result.x.tobytes() == expected().x.tobytes()


# --- nobody is waited for --------------------------------------------------------------------


def test_channel_never_waits() -> None:
    ours, theirs = socket.socketpair()
    message = bytes(range(256)) * 100_000
    end = Channel(ours)
    with theirs:
        end.send(message)  # nobody reads
        assert end.more
        assert end.receive() == []
        half = messages._LENGTH.pack(1000) + b"a" * 500
        theirs.sendall(half)
        assert end.receive() == []
        theirs.sendall(b"a" * 500 + messages._LENGTH.pack(2) + b"bc" + messages._LENGTH.pack(9))
        assert end.receive() == [b"a" * 1000, b"bc"]
        assert not end.closed
        got = bytearray()
        while len(got) < len(message) + messages._LENGTH.size:
            got += theirs.recv(1 << 20)
            end.flush()
        assert got[messages._LENGTH.size :] == message
        assert not end.more
    assert end.receive() == []
    assert end.closed
    end.close()


class Talkative(DES):
    """Says so much to its workers that no socket holds it."""

    def plan(self, state: Any) -> Task:
        return replace(super().plan(state), scalars=(0.0,) * 200_000)


def test_stopped_process_is_not_waited_for() -> None:
    """Stopped while it is idle: a large request does not block the engine, and it is replaced."""

    def stop(row: desopt.Row) -> None:
        if row["round"] == 1:
            (watcher,) = watchers()
            for process in (watcher, *watcher.children()):
                process.suspend()

    method = Talkative(iterations=4, sampler=DES().sampler)
    with pytest.warns(RuntimeWarning, match="no answer in time"):
        result = run(
            least_squares,
            method=method,
            jobs=1,
            workers=1,
            round_timeout=6.0,
            attempts=20,
            callbacks=[stop],
        )
    alone = run(least_squares, method=method, engine="serial", workers=1)
    assert result.x.tobytes() == alone.x.tobytes()


def test_process_that_is_stopped_at_once_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it has read its job, which is larger than any pipe."""
    from desopt.engines.processes import pool as processes

    original = watched.Watched.__init__
    stopped: list[int] = []

    def stop_the_first(self: watched.Watched, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        if stopped:
            monkeypatch.setattr(processes, "_START_LIMIT", 120.0)
        else:
            stopped.append(self.popen.pid)
            self.popen.send_signal(signal.SIGSTOP)

    monkeypatch.setattr(processes, "_START_LIMIT", 2.0)
    monkeypatch.setattr(watched.Watched, "__init__", stop_the_first)
    ballast = b"x" * 10_000_000
    with pytest.warns(RuntimeWarning, match="no answer in time"):
        result = run(lambda x, batch: least_squares(x, batch) + 0.0 * len(ballast), jobs=1)
    assert result.x.tobytes() == expected().x.tobytes()


# --- parents of all kinds --------------------------------------------------------------------

SCRIPT = """
import os, sys, warnings
import numpy as np
import desopt
desopt.minimize  # imports it
{before}
def fun(x, batch):
    {inside}
    return float(np.mean((batch @ x - 1.0) ** 2))
X = np.random.default_rng(0).standard_normal((40, 3))
def go(**more):
    settings = dict(workers=2, rounds=3, iterations=4, batch_size=5, eval_every=0,
                    engine="processes", jobs=1)
    return desopt.minimize(fun, np.zeros(3), X, **(settings | more))
result = go({settings})
{after}
with open(sys.argv[1], "w") as out:
    out.write(result.x.tobytes().hex())
"""


def assert_script_reaches_x(
    folder: Path, *flags: str, before: str = "", inside: str = "", after: str = "",
    settings: str = "", redirect: str = "", **options: Any,
) -> str:  # fmt: skip
    """Run the script in a shell; its stderr."""
    code = SCRIPT.format(before=before, inside=inside, after=after, settings=settings)
    (folder / "script.py").write_text(code)
    out = folder / "x"
    out.unlink(missing_ok=True)
    arguments = [sys.executable, *flags, str(folder / "script.py"), str(out)]
    usual: dict[str, Any] = {"cwd": folder, "capture_output": True, "text": True, "timeout": 200}
    shell = ["sh", "-c", f'exec "$@" {redirect}', "sh"]
    done = subprocess.run([*shell, *arguments], **(usual | options))
    assert done.returncode == 0, done.stderr
    assert out.read_text() == expected().x.tobytes().hex()
    return str(done.stderr or "")


DIE_ONCE = "if not os.path.exists('died'): open('died', 'w').close(); os._exit(3)"


REAP = """
import signal
def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
signal.signal(signal.SIGCHLD, reap)
"""


@pytest.mark.parametrize(
    "before",
    [
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        REAP,
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
    ],
    ids=["ignored", "reaped by others", "all signals blocked"],
)
def test_exit_code_whatever_the_parent_does_with_signals(tmp_path: Path, before: str) -> None:
    errors = assert_script_reaches_x(tmp_path, before=before, inside=DIE_ONCE)
    assert "died (exit code 3)" in errors


WRITE = (
    "if 'desopt.engines.processes.child' in sys.modules: "
    "os.write(2, b'x' * 4096); os.write(1, b'y')"
)


@pytest.mark.parametrize(
    ("before", "redirect", "inside"),
    [
        ("", "0<&- 1>&- 2>&-", WRITE),
        ("", "2>/dev/full", ""),
        ("sys.stderr = None", "2>&-", WRITE),
        ("sys.stderr.close()", "", ""),
    ],
)
def test_stderr_may_be_closed(tmp_path: Path, before: str, redirect: str, inside: str) -> None:
    """With a bar, warnings that nobody can read, and processes that write to what is closed."""
    assert_script_reaches_x(
        tmp_path, before=before, inside=f"{DIE_ONCE}\n    {inside}", redirect=redirect,
        settings="progress=True", after="go(progress=None, engine='serial', momentum=0.9)",
    )  # fmt: skip
    assert (tmp_path / "died").exists(), "else there was nothing to warn of"


@pytest.mark.parametrize(
    ("arguments", "redirect", "code"),
    [("data list", ">&-", 0), ("data list", "<&- >&- 2>&-", 0), ("nonsense", "2>&-", 2)],
)
def test_command_with_a_closed_terminal(arguments: str, redirect: str, code: int) -> None:
    command = f'"$0" -m desopt {arguments} {redirect}'
    done = subprocess.run(["sh", "-c", command, sys.executable], timeout=200, capture_output=True)
    assert (done.returncode, done.stderr) == (code, b"")


#: Entries of sys.path, and what is done before and after a module is imported from there.
PATHS = {
    "strange": "sys.path[:0] = [pathlib.Path('a'), os.fsdecode(b'caf\\xe9')]",
    "current folder, left": "sys.path.insert(0, ''); import mine; os.chdir('/')",
    "relative, left": "sys.path.insert(0, 'sub'); import mine; os.chdir('/')",
    "zip": "sys.path.insert(0, 'z.zip'); import mine",
    "taken off again": "sys.path.insert(0, 'sub'); import mine; del sys.path[0]",
    "folder removed": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
}


@pytest.mark.parametrize("case", PATHS)
def test_sys_path_may_hold_anything(tmp_path: Path, case: str) -> None:
    folder = "sub" if "'sub'" in PATHS[case] else "."
    (tmp_path / "sub").mkdir()
    (tmp_path / folder / "mine.py").write_text("def zero(): return 0.0\n")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.write(tmp_path / folder / "mine.py", "mine.py")
    if "zip" in case:
        (tmp_path / "mine.py").unlink()
    uses = "import mine" in PATHS[case]
    assert_script_reaches_x(
        tmp_path,
        before=f"import pathlib\nsys.path.remove({str(tmp_path)!r})\n{PATHS[case]}\n"
        + ("zero = mine.zero" if uses else ""),  # a function of a module is sent by name
        inside="import mine; assert zero() == mine.zero() == 0.0" if uses else "",
    )


def test_entries_that_imports_pass_over_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", "a", b"b", None, 3, Path("c"), "/d/\udce9"])
    path = python.import_path()
    assert path[:3] == ["", os.path.abspath("a"), "/d/\udce9"]
    assert all(isinstance(entry, str) and os.path.isabs(entry) for entry in path[1:])


def test_file_named_like_a_module_of_python_is_not_taken_for_it(tmp_path: Path) -> None:
    """In the folder where the program is started, which is not the folder of the script."""
    (tmp_path / "elsewhere").mkdir()
    for name in ("json", "signal", "select", "struct", "socket", "contextlib", "random"):
        (tmp_path / "elsewhere" / f"{name}.py").write_text("raise SystemExit('wrong module')\n")
    assert_script_reaches_x(tmp_path, cwd=tmp_path / "elsewhere")


@pytest.mark.parametrize("flags", [("-I", "-O"), ("-P", "-W", "error", "-X", "utf8")])
def test_flags_of_the_interpreter_reach_the_processes(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    package = str(Path(desopt.__file__).parents[1])
    text = SCRIPT.format(
        before="flags = tuple(sys.flags), sys.warnoptions",
        inside="if (tuple(sys.flags), sys.warnoptions) != flags: raise ValueError(sys.flags)",
        after="", settings="",
    )  # fmt: skip
    (tmp_path / "script.py").write_text(f"import sys; sys.path.insert(0, {package!r})\n{text}")
    done = subprocess.run(
        [sys.executable, *flags, "script.py", "x"], cwd=tmp_path, capture_output=True, text=True,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x").read_text() == expected().x.tobytes().hex()


def test_hardly_any_environment(tmp_path: Path) -> None:
    package = str(Path(desopt.__file__).parents[1])
    assert_script_reaches_x(
        tmp_path, env={"PYTHONPATH": package, "PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    )


def test_parent_with_many_threads(tmp_path: Path) -> None:
    before = (
        "import threading\nstop = threading.Event()\nfor _ in range(200):\n"
        "    threading.Thread(target=stop.wait).start()"
    )
    assert_script_reaches_x(tmp_path, before=before, settings="jobs=2", after="stop.set()")


def test_too_few_open_files_are_named() -> None:
    code = (
        "import numpy as np, desopt, resource\n"
        "desopt.minimize(lambda x: float(x @ x), np.ones(2), rounds=1, engine='serial')\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (24, hard))\n"
        "try:\n"
        "    desopt.minimize(lambda x: float(x @ x), np.ones(2), workers=40, rounds=1,"
        " engine='processes', jobs=40)\n"
        "except desopt.EngineError as error:\n"
        "    print(error)\n"
        "import psutil\n"
        "print(len(psutil.Process().children()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    said, children = done.stdout.splitlines()
    assert "cannot be started" in said
    assert "Too many open files" in said
    assert "use fewer jobs" in said
    assert children == "0"


@pytest.mark.parametrize("program", ["", None])
def test_no_python_program(monkeypatch: pytest.MonkeyPatch, program: str | None) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(desopt.EngineError, match=r"sys\.executable is empty"):
        run(least_squares)
    result = run(least_squares, engine="auto", jobs=2)
    assert result.engine == "serial"
    assert "sys.executable" in result.message
