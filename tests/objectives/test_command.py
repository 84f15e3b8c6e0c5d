"""Programs as functions: what they are given, what is taken from them, and how they may fail."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import desopt
from desopt import Command, Failed
from desopt.contract.errors import ObjectiveError
from desopt.objectives.command import _permit
from desopt.objectives.readings import reading
from desopt.objectives.templates import Variables, fill
from desopt.run.code_digest import code_digest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="uses sh")

X = np.array([1.5, -2.0])
NAMES = ["a", "b"]

Make = Callable[..., Command]


@pytest.fixture
def shell() -> Iterator[Make]:
    """Commands that run a line of the shell with {a} and {b} as $1 and $2; closed at the end."""
    made: list[Command] = []

    def make(line: str, *words: str, **options: Any) -> Command:
        options.setdefault("variables", NAMES)
        made.append(Command(["sh", "-c", line, "sh", *(words or ("{a}", "{b}"))], **options))
        return made[-1]

    yield make
    for command in made:
        command.close()


def script(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def reason(command: Command) -> str:
    with pytest.raises(Failed) as failure:
        command(X)
    return failure.value.reason


# ---------------------------------------------------------------- parameters


def test_program_with_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "simulate", '#!/bin/sh\necho "$1"\n')
    monkeypatch.chdir(tmp_path)
    with Command(["./simulate", "{b}", "{a}"], variables=NAMES) as f:
        monkeypatch.chdir("/")  # the path is that of the folder where the command was made
        assert f(X) == -2.0
        assert f([1.0, 0.1 + 0.2]) == 0.1 + 0.2  # to the last bit


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("{a}", "1.5"),
        ("--rate={a:.3e}", "--rate=1.500e+00"),
        ("{x[1]:+.1f}", "-2.0"),
        ("{x}", "1.5 -2.0"),
        ("{x:.2f}", "1.50 -2.00"),
        ("{{{b:g}}}", "{-2}"),
    ],
)
def test_templates(word: str, filled: str) -> None:
    assert fill(word, Variables(NAMES).values(X)) == filled


def test_no_shell_looks_at_the_arguments(shell: Make) -> None:
    f = shell('printf "%s" "$1" | wc -c', "$(echo {a}) ; ' *", "{b}")
    assert f(X) == len("$(echo 1.5) ; ' *")


def test_numbers_without_names(shell: Make) -> None:
    f = shell("echo $2", "{x0}", "{x[1]}", variables=None)
    assert f(X) == -2.0
    with pytest.raises(ValueError, match="more numbers than the 1 in x"):
        f([1.0])


def test_variable_with_the_name_x(shell: Make) -> None:
    assert shell("echo $1", "{x}", "{y}", variables=["x", "y"])(X) == 1.5


def test_environment_is_added_to_ours(shell: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSET", "40")
    f = shell('echo "$OFFSET$ALPHA"', "-", env={"ALPHA": "{a:.1f}", "OTHER": "{b}"})
    assert f(X) == 401.5
    monkeypatch.setenv("OFFSET", "50")
    assert f(X) == 501.5


def test_stdin_of_any_size(shell: Make) -> None:
    assert shell("read first second; echo $second", "-", stdin="{a} {b}\n")(X) == -2.0
    assert shell("tail -c 4", "-", stdin="0" * 300_000 + " {x[0]}", variables=None)(X) == 1.5
    assert shell("cat; echo $1")(X) == 1.5  # nothing to read, not our terminal


def test_json_file_in(shell: Make) -> None:
    assert shell("cat in/p.json", "-", input="in/p.json", value="json:b")(X) == -2.0
    f = shell("cat p.json", "-", input="p.json", value="json:x[1]", variables=None)
    assert f(X) == -2.0


def test_template_files_and_links(shell: Make, tmp_path: Path) -> None:
    deck = tmp_path / "deck.template"
    deck.write_text("&deck a={a:.2f} b={b} /")
    (tmp_path / "mesh.dat").write_text("300")
    f = shell(
        "cat deck.in other.txt mesh",
        "-",
        input={"deck.in": deck, "other.txt": "{{{a}}}"},
        files={"mesh": tmp_path / "mesh.dat"},
        value=r"a=1.50 b=-2.0 /\{1.5\}(\d+)",
    )
    deck.write_text("changed afterwards")
    assert f(X) == 300.0


def test_each_call_has_an_empty_folder_and_none_is_left(shell: Make, tmp_path: Path) -> None:
    f = shell("ls | wc -l; mkdir -p d/e; echo > d/e/f; chmod 500 d/e", cwd=tmp_path)
    assert [f(X), f(X)] == [0.0, 0.0]
    assert not list(tmp_path.iterdir())


def test_what_links_point_to_stays_as_it_is(tmp_path: Path) -> None:
    theirs, trial = tmp_path / "theirs", tmp_path / "trial"
    theirs.mkdir(0o500)
    (trial / "closed").mkdir(parents=True)
    (trial / "closed" / "link").symlink_to(theirs)
    (trial / "closed").chmod(0o000)
    _permit(str(trial))
    assert (trial / "closed").stat().st_mode & 0o777 == 0o700
    assert theirs.stat().st_mode & 0o777 == 0o500


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("text", "value", "number"),
    [
        ("  -1.5e3\n", None, -1500.0),
        ("1.5D+03", None, 1500.0),
        ("loss 3\nloss 2\ndone", r"loss (\S+)", 2.0),
        ("x 1 y 2.5 z", r"\d+\.\d+", 2.5),
        ('{"r": [{"loss": 4}]}', "json:r[0].loss", 4.0),
        ('{"a.b": {"c": 1e-3}}', 'json:["a.b"].c', 1e-3),
        ("[1, 2, 7]", "json:[-1]", 7.0),
        ('note\n{"loss": 5}\n', "json:loss", 5.0),
        ("6", "json:", 6.0),
    ],
)
def test_value_in_a_text(text: str, value: str | None, number: float) -> None:
    assert reading(value)(text, False) == number


@pytest.mark.parametrize(("to", "output"), [("", "stdout"), (">&2", "stderr"), ("> o", "o")])
def test_value_in_each_output(shell: Make, to: str, output: str) -> None:
    f = shell(f"echo 1; echo 2 >&2; echo 3 > o; echo loss 4 {to}", output=output, value=r"\d+")
    assert f(X) == 4.0


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("", None, "no output"),
        ("1 2", None, "not one number"),
        ("nan", None, "not finite"),
        ("loss inf", r"loss (\S+)", "inf, which is not finite"),
        ("loss = low", r"loss = (\S+)", "'low', which is not a number"),
        ("lost", r"loss (\S+)", "no match of"),
        ("b 1", r"a (\d)|b \d", "without its first group"),
        ("{", "json:loss", "not JSON"),
        ('{"a": 1}', "json:loss", "no 'loss' in the JSON output"),
        ("[1]", "json:[3]", "3 is missing"),
        ('{"loss": "1"}', "json:loss", "'1' at 'loss', which is not a number"),
        ('{"loss": true}', "json:loss", "not a number"),
        ('{"loss": NaN}', "json:loss", "not finite"),
        ('{"loss": 1' + "0" * 400 + "}", "json:loss", "too large"),
        ("[" * 100_000, "json:loss", "not JSON"),
    ],
)
def test_garbage(text: str, value: str | None, why: str) -> None:
    with pytest.raises(Failed, match=re.escape(why)) as failure:
        reading(value)(text, False)
    assert len(failure.value.reason) < 200
    assert "\n" not in failure.value.reason


def test_reason_names_the_output_and_ends_with_it(shell: Make) -> None:
    found = reason(shell("yes abc | head -n 500; echo last words >&2"))
    assert found.startswith("stdout: 'abc")
    assert found.endswith("stderr ends with: last words; stdout ends with: abc | abc | abc")


def test_bytes_that_are_no_text(shell: Make) -> None:
    f = shell(r"printf '\377\000\033[1m loss 3 \376'", value=r"loss (\d)")
    assert f(X) == 3.0
    found = reason(shell(r"printf '\377\000\033[1m'; exit 1"))
    assert found.isprintable()


def test_missing_and_odd_files(shell: Make) -> None:
    assert "out.json: No such file" in reason(shell("echo 1", output="out.json", value="json:v"))
    assert "out: no regular file" in reason(shell("mkfifo out", output="out"))
    assert "out: " in reason(shell("mkdir out", output="out"))


def test_large_output_is_bounded(shell: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("desopt.objectives.command.MOST", 1 << 16)
    noise = "yes 'loss 1' | head -c 5000000"
    assert shell(f"{noise}; {noise} >&2; echo; echo loss 2", value=r"loss (\d)")(X) == 2.0
    assert shell(f"{noise} > log; echo loss 3 >> log", output="log", value=r"loss (\d)")(X) == 3.0
    assert "its last 16 MiB" in reason(shell(noise, value=r"gain (\d)"))
    assert "more output" in reason(shell(noise))


# ---------------------------------------------------------------- failures


def test_exit_code_with_the_last_words(shell: Make) -> None:
    found = reason(shell("echo begun; for i in 1 2 3 4 5; do echo line $i >&2; done; exit 3"))
    assert found.startswith("exit code 3; ")
    assert "stderr ends with: line 3 | line 4 | line 5" in found
    assert "stdout ends with: begun" in found


def test_value_does_not_count_after_a_failure(shell: Make) -> None:
    assert "exit code 1" in reason(shell("echo 5; exit 1"))


def test_crash_by_a_signal(shell: Make) -> None:
    f = shell("kill -SEGV $$")
    assert reason(f).startswith("killed by signal 11 (SIGSEGV)")
    assert reason(f).startswith("killed")  # the next call is as good as the first


FAMILY = """
import os, subprocess, sys, time
kinds = [[], ["setsid"]]
pids = [os.getpid(), *(subprocess.Popen([*k, "sleep", "1000"]).pid for k in kinds)]
if os.fork() == 0:  # a daemon: its own session, its parent dead
    os.setsid()
    pid = os.fork()
    if pid:
        os._exit(0)
    pids.append(os.getpid())
    with open(sys.argv[1] + ".part", "w") as file:
        print(*pids, file=file)
    os.rename(sys.argv[1] + ".part", sys.argv[1])
    time.sleep(1000)
os.wait()
if sys.argv[2] == "hang":
    time.sleep(1000)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
print(1)
"""


def family(tmp_path: Path, how: str, **options: Any) -> Command:
    program = script(tmp_path / "family.py", FAMILY)
    words = [sys.executable, "-S", str(program), str(tmp_path / "pids"), how, "{x}"]
    return Command(words, **options)


def pids(tmp_path: Path) -> list[int]:
    """The processes of a family, once all have started."""
    while not (tmp_path / "pids").exists():
        time.sleep(0.01)
    return [int(pid) for pid in (tmp_path / "pids").read_text().split()]


def gone(numbers: list[int]) -> bool:
    """Whether they are dead, after at most some minutes."""
    for _ in range(30_000):
        if not any(map(_works, numbers)):
            return True
        time.sleep(0.01)
    return False


def _works(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def test_end_takes_the_whole_family_along(tmp_path: Path) -> None:
    with family(tmp_path, "end") as f:
        assert f(X) == 1.0
        assert len(pids(tmp_path)) == 4
        if sys.platform == "linux":
            assert not any(map(_works, pids(tmp_path)))


def test_time_out_kills_the_whole_family(tmp_path: Path) -> None:
    with family(tmp_path, "hang", timeout=1.0) as f:
        assert reason(f) == "no end within timeout=1 s"
        if sys.platform == "linux":
            assert not any(map(_works, pids(tmp_path) if (tmp_path / "pids").exists() else []))


@pytest.mark.skipif(sys.platform != "linux", reason="daemons need a subreaper")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_end_of_our_process_ends_the_program(tmp_path: Path, number: signal.Signals) -> None:
    program = script(tmp_path / "family.py", FAMILY)
    words = [sys.executable, "-S", str(program), str(tmp_path / "pids"), "hang", "{x}"]
    code = f"import desopt; desopt.Command({words!r}, cwd={str(tmp_path)!r})([1.0])"
    ours = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    numbers = pids(tmp_path)
    ours.send_signal(number)
    assert (b"KeyboardInterrupt" in ours.communicate()[1]) == (number == signal.SIGINT)
    assert gone(numbers)
    if number == signal.SIGINT:
        assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.skipif(sys.platform != "linux", reason="daemons need a subreaper")
def test_killed_watcher_is_a_failure_and_is_replaced(tmp_path: Path) -> None:
    with family(tmp_path, "hang") as f:

        def kill() -> None:
            psutil.Process(pids(tmp_path)[0]).parent().kill()

        killer = threading.Thread(target=kill)
        killer.start()
        assert reason(f).startswith("killed by signal 9")
        killer.join()
        numbers = pids(tmp_path)
        for pid in numbers[2:]:  # left the group, and nobody watches over them any more
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert gone(numbers)
        (tmp_path / "family.py").write_text("print(7)")
        assert f(X) == 7.0


def test_kept_folders(shell: Make, tmp_path: Path) -> None:
    line = "echo out; echo err >&2; test $1 = 1.5 && exit 2; echo 4"
    f = shell(line, cwd=tmp_path, keep="failed", value=r"\d")
    assert f([2.0, 0.0]) == 4.0
    assert not list(tmp_path.iterdir())
    found = reason(f)
    (folder,) = tmp_path.iterdir()
    assert found.endswith(f"kept in {folder}")
    assert (folder / "desopt-stderr.txt").read_text() == "err\n"
    assert (folder / "desopt-stdout.txt").read_text() == "out\n"
    record = json.loads((folder / "desopt-trial.json").read_text())
    assert record["x"] == {"a": 1.5, "b": -2.0}
    assert record["failed"].startswith("exit code 2")
    assert shell(line, cwd=tmp_path, keep="all", value=r"\d")([2.0, 0.0]) == 4.0
    assert len(list(tmp_path.iterdir())) == 2


def test_program_that_removes_its_folder(shell: Make, tmp_path: Path) -> None:
    assert shell('rmdir "$PWD"; echo 2', cwd=tmp_path, keep="all")(X) == 2.0


# ---------------------------------------------------------------- errors


def test_one_text_is_no_command() -> None:
    for text in ("./simulate {a}", Path("simulate"), b"x"):
        with pytest.raises(TypeError, match=r"must be a list.*\['sh', '-c'"):
            Command(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        ([], {}, "begin with a program"),
        (["sh", 1, "{x}"], {}, "must be a list of texts"),
        (5, {}, "must be a list of texts"),
        (["sh", "{aa}"], {}, "uses 'aa'.*did you mean {a}"),
        (["sh", "{a}", "{b}", "{}"], {}, "is no template"),
        (["sh", "{a}", "{b"], {}, "is no template"),
        (["sh", "{a:d}", "{b}"], {}, "Unknown format code 'd'"),
        (["sh", "{a}", "{x[2]}"], {}, "is no template"),
        (["sh", "{a}", "{x[k]}"], {"variables": None}, "uses 'a'"),
        (["sh", "{x[k]}"], {"variables": None}, "indexed by numbers"),
        (["sh", "{x01}"], {"variables": None}, "uses 'x01'"),
        (["sh", "{a}\0", "{b}"], {}, "zero character"),
        (["sh", "{a}"], {}, "no template uses the variables b"),
        (["sh"], {"variables": None}, "no variable is used"),
        (["sh", "{x}"], {"variables": ["a", "a"]}, "a twice"),
        (["sh", "{x}"], {"variables": []}, "no name"),
        (["sh", "{x}"], {"variables": ["a b"]}, "'a b' is no name"),
        (["sh", "{x}"], {"value": "("}, "no regular expression"),
        (["sh", "{x}"], {"value": "json:a..b"}, "no JSON path"),
        (["sh", "{x}"], {"value": "json:a]"}, "no JSON path"),
        (["sh", "{x}"], {"timeout": 0}, "timeout must be > 0"),
        (["sh", "{x}"], {"keep": "some"}, "unknown keep 'some'"),
        (["sh", "{x}"], {"keep": "all"}, "needs cwd"),
        (["sh", "{x}"], {"output": "/tmp/out"}, "output must name a file in the folder"),
        (["sh", "{x}"], {"input": "../p.json"}, "input must name a file in the folder"),
        (["sh", "{x}"], {"input": "p", "output": "p"}, "name the same file 'p'"),
        (["sh", "{x}"], {"input": {"p": "{c}"}}, r"input\['p'\].*uses 'c'"),
        (["sh", "{x}"], {"env": {"A": "{c}"}}, r"env\['A'\].*uses 'c'"),
        (["sh", "{x}"], {"stdin": "{c}"}, "stdin.*uses 'c'"),
    ],
)
def test_bad_settings(words: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Command(words, **({"variables": NAMES} | options))


@pytest.mark.parametrize(
    "options",
    [{"variables": "ab"}, {"variables": [1]}, {"env": {"A": 1}}, {"env": {"A=": "1"}},
     {"stdin": 3}, {"input": 3}, {"input": {"p": 3}}, {"value": 3}, {"timeout": "1"},
     {"variables": 5}, {"env": ["A"]}, {"files": ["mesh"]}, {"files": {"mesh": 3}}],
)  # fmt: skip
def test_bad_types(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="must be"):
        Command(["sh", "{x}"], **options)


def test_programs_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script(tmp_path / "tool", "#!/bin/sh\necho 1").chmod(0o644)
    for word, kind, message in (
        ("./missing", FileNotFoundError, "there is no program .*/missing"),
        ("no-such-program", FileNotFoundError, "no program 'no-such-program'.*PATH"),
        ("tool", FileNotFoundError, "write './tool'"),
        ("./tool", PermissionError, r"chmod \+x"),
    ):
        with pytest.raises(kind, match=message):
            Command([word, "{x}"])
    with pytest.raises(ValueError, match=r"'tool' is a file of the current folder.*files="):
        Command(["sh", "tool", "{x}"])
    with Command(["sh", "tool", "{x}"], files={"tool": "tool"}) as f:
        assert f(X) == 1.0
    with pytest.raises(FileNotFoundError, match=r"files\['mesh'\]"):
        Command(["sh", "{x}"], files={"mesh": "missing"})
    with pytest.raises(FileNotFoundError, match="cwd: there is no folder"):
        Command(["sh", "{x}"], cwd="missing")


def test_programs_that_cannot_be_started(tmp_path: Path) -> None:
    tool = script(tmp_path / "tool", "#!/no/such/interpreter\n")
    with Command([tool, "{x}"]) as f:
        with pytest.raises(OSError, match=r"cannot be started.*interpreter"):
            f(X)
        script(tool, "echo 1\n")
        with pytest.raises(OSError, match=r"cannot be started.*first line"):
            f(X)
        with pytest.raises(OSError, match=r"cannot be started.*stdin="):
            f(np.arange(400_000.0))
        script(tool, "#!/bin/sh\necho 8\n")
        assert f(X) == 8.0  # by the same watcher
        tool.unlink()
        with pytest.raises(FileNotFoundError, match="there is no program"):
            f(X)


def test_x_of_another_length(shell: Make) -> None:
    with pytest.raises(ValueError, match="x has 3 numbers, but variables names 2: a, b"):
        shell("echo 1")([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="must be a vector"):
        shell("echo 1")([[1.0, 2.0]])


# ---------------------------------------------------------------- as an objective

SPHERE = """
import sys
a, b = map(float, sys.argv[1:])
if b > 2.5:
    sys.exit("diverged")
print("loss", (a - 1) ** 2 + (b - 2) ** 2)
"""


def test_same_run_in_processes_and_in_threads(tmp_path: Path) -> None:
    program = script(tmp_path / "sphere.py", SPHERE)
    words = [sys.executable, "-S", str(program), "{a}", "{b}"]
    with Command(words, variables=NAMES, value=r"loss (\S+)") as f:
        runs = [
            desopt.minimize(
                f, np.zeros(2), engine=engine, jobs=2, workers=2, rounds=3, iterations=4,
                batch_size=1, step_size=0.7, seed=1, method="des",
            )
            for engine in ("processes", "threads")
        ]  # fmt: skip
    assert runs[0].x.tobytes() == runs[1].x.tobytes()
    assert runs[0].fun < 5.0


@pytest.mark.filterwarnings("ignore:fun returned NaN")
@pytest.mark.filterwarnings(r"ignore:\d+ values? failed")
def test_failed_is_no_value_and_other_errors_end_the_run() -> None:
    def fun(x: Any) -> float:
        if x[0] != 0.0:
            raise Failed("too far")
        return 1.0

    result = desopt.minimize(fun, np.zeros(2), rounds=2, iterations=2, workers=1, engine="serial")
    assert result.x.tolist() == [0.0, 0.0]
    f = Command(["sh", "-c", "exit 0", "{x}"])
    f.command, f._program, f._found = ("/no/such", "{x}"), "/no/such", None
    with pytest.raises(ObjectiveError, match="there is no program /no/such"):
        desopt.minimize(f, np.zeros(2), rounds=2, iterations=2, workers=1, engine="serial")


def test_threads_at_once(shell: Make, tmp_path: Path) -> None:
    """Each of two programs waits for the other."""
    line = 'cd "$3" && touch "$1" && while test "$(ls | wc -l)" -lt "$2"; do :; done; echo $1'
    f = shell(line, "{a}", "{b:.0f}", str(tmp_path))
    found = [f([0.0, 1.0])]  # its watcher is idle then
    threads = [threading.Thread(target=lambda v=v: found.append(f([v, 3]))) for v in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0.0, 1.0, 2.0]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_fork_does_not_use_our_watcher(shell: Make) -> None:
    f = shell("echo $PPID")
    watcher = f(X)
    child = os.fork()
    if child == 0:
        code = 9
        with suppress(BaseException):
            code = int(f(X) != watcher)
            f.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert f(X) == watcher


def test_digest_is_that_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "mesh").write_text("")
    base: dict[str, Any] = {"command": ["sh", "{a}", "{b}"], "variables": NAMES}
    others: list[dict[str, Any]] = [
        {"command": ["sh", "{a}", "{b:g}"]}, {"command": ["sh", "{b}", "{a}"]},
        {"variables": ["b", "a"]}, {"value": "(.)"}, {"output": "stderr"}, {"output": "o"},
        {"env": {"A": "1"}}, {"stdin": ""}, {"input": "p.json"}, {"input": {"p.json": ""}},
        {"files": {"m": tmp_path / "mesh"}},
    ]  # fmt: skip
    made = [Command(**(base | other)) for other in others]
    same = [Command(**(base | other)) for other in ({}, {"timeout": 3}, {"cwd": tmp_path})]
    digests = [code_digest(command) for command in made]
    (digest,) = {code_digest(command) for command in [*same, pickle.loads(pickle.dumps(same[0]))]}
    assert None not in digests
    assert len({*digests, digest}) == len(made) + 1


def test_digest_of_a_function_around_a_command() -> None:
    def around(command: Command) -> Callable[[Any], float]:
        return lambda x: command(x) + 1.0

    one, same, other = (Command(["sh", word, "{x}"]) for word in ("-e", "-e", "-u"))
    assert code_digest(around(one)) == code_digest(around(same)) != code_digest(around(other))


def test_a_resumed_run_notices_another_command(shell: Make, tmp_path: Path) -> None:
    def run(f: Command) -> desopt.Result:
        return desopt.minimize(
            f, np.zeros(2), rounds=1, iterations=1, workers=1, engine="serial",
            journal=tmp_path / "run.journal",
        )  # fmt: skip

    run(shell("echo $1"))
    with pytest.warns(RuntimeWarning, match="began with other code of fun"):
        run(shell("echo $2"))
