"""Any program as a function: x goes into its arguments or files, the value comes from its output.

Each call runs the program in a fresh folder. A watcher (``system/watcher.py``) starts it and ends
it, with all that it has started, when it has ended itself, after ``timeout``, and when this
process ends.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from desopt.contract.checks import optional, positive
from desopt.contract.errors import Failed, check_name
from desopt.objectives import command_arguments as arguments
from desopt.objectives.readings import MOST, reading
from desopt.objectives.templates import Variables, fill
from desopt.system.launcher import Ended, Launcher
from desopt.system.support import require_processes

Keep = Literal["none", "failed", "all"]
PathName = str | os.PathLike[str]

#: Bytes to keep of an output that the value is not in.
_TAIL = 1 << 20
#: Lines and characters of an output in the reason of a failure.
_LINES, _WIDTH = 3, 300
_STREAMS = ("stdout", "stderr")
_HINTS = {
    errno.ENOENT: "the interpreter in its first line (#!) is missing",
    errno.ENOEXEC: "a script needs a first line such as #!/bin/sh; a binary, this kind of machine",
    errno.EACCES: "it may not be executed, or lies on a disk mounted noexec",
    errno.E2BIG: "the arguments are too long; pass x by stdin= or input=",
}


class Command:
    """``fun(x)`` for ``minimize``: runs a program and takes the value from its output.

    **Input.** ``command`` is a list of the program and its arguments. ``{a}``, ``{a:.3e}`` and
    ``{x[0]}`` stand for single numbers, ``{x}`` for all of them. ``variables`` are their names in
    the order of x (default: ``x0``, ``x1``, ...). There are more templates: ``env``, variables of
    the environment; ``stdin``, a text; ``input``, files by name, each a text or the ``Path`` of a
    template. A plain name, ``input="params.json"``, is a JSON object of all variables.

    **Output.** ``value`` is a regular expression, whose last match has the number: its first group,
    or all of it; or a path such as ``"json:results[0].loss"``; or None for an output that is
    nothing but a number. ``output`` says where to look: ``"stdout"``, ``"stderr"`` or the name of a
    file.

    **Folders.** Each call runs in an empty folder of its own below ``cwd`` (default: the system's
    folder for temporary files). The folder has links to ``files`` by name, which the program must
    not change. ``keep`` says which folders stay: ``"none"``, those of ``"failed"`` calls or
    ``"all"``.

    **Failures.** An exit code other than 0, a signal, no end within ``timeout`` seconds, and an
    output without a finite value raise ``desopt.Failed`` with the reason: for ``minimize`` a
    rejected step. A program that cannot be started is an error.

    >>> fun = desopt.Command(["echo", "loss = {x[0]:.2f}"], value="loss = (.+)")
    >>> fun(np.array([2.5]))
    2.5
    """

    def __init__(
        self,
        command: Sequence[PathName],
        *,
        variables: Sequence[str] | None = None,
        value: str | None = None,
        output: str = "stdout",
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        input: str | Mapping[str, str | Path] | None = None,
        files: Mapping[str, PathName] | None = None,
        timeout: float | None = None,
        cwd: PathName | None = None,
        keep: Keep = "none",
    ) -> None:
        require_processes("desopt.Command", "Minimise a Python function that runs the program")
        self.command = arguments.words(command)
        self.variables = Variables(variables)
        self.value, self._read = value, reading(value)
        self.output = output if output in _STREAMS else arguments.inside("output", output)
        self.env = arguments.texts("env", env)
        self.stdin = stdin
        self._json = arguments.inside("input", input) if isinstance(input, str) else None
        self.input = {} if isinstance(input, str) else arguments.inputs(input)
        self.files = arguments.files(files)
        self.timeout = optional(positive, "timeout", timeout)
        self.cwd = None if cwd is None else os.path.abspath(cwd)
        self.keep = keep
        self._sources = {name: os.path.abspath(source) for name, source in self.files.items()}
        program = self.command[0]
        self._program = os.path.abspath(program) if os.sep in program else program
        self._start_afresh()
        self._check()

    def __call__(self, x: ArrayLike) -> float:
        """The value at x, or ``Failed``."""
        point = np.asarray(x, np.float64)
        if point.ndim != 1:
            raise ValueError(f"x must be a vector, got shape {point.shape}")
        values = self.variables.values(point)
        folder = self._folder()
        record: dict[str, Any] = {"x": self.variables.as_json(values)}
        kept = False
        try:
            record["value"] = self._evaluate(folder, values, record)
            kept = self.keep == "all"
        except Failed as failure:
            kept = self.keep != "none"
            record["failed"] = str(failure)
            raise Failed(f"{failure}; kept in {folder}" if kept else str(failure)) from None
        finally:
            if kept:
                _write(folder, "trial.json", json.dumps(record, indent=1).encode() + b"\n")
            else:
                _remove(folder)
        return float(record["value"])

    def code_identity(self) -> tuple[Any, ...]:
        """What decides the value, by which a resumed run notices another command.

        Neither a longer ``timeout`` nor another folder makes another command.
        """
        rest = self.value, self.output, self.stdin, self._json
        tables = (self.env, self.input, self.files)
        return (
            self.command, self.variables.names, rest,
            *(tuple(sorted(table.items())) for table in tables),
        )  # fmt: skip

    def close(self) -> None:
        """End the idle programs that start others; the next call starts a new one."""
        self._finalizer()
        self._start_afresh()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Command({list(self.command)!r})"

    def __getstate__(self) -> dict[str, Any]:
        own = ("_idle", "_finalizer", "_found")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._idle: list[Launcher] = []
        self._found: str | None = None
        self._finalizer = weakref.finalize(self, _close_all, self._idle)

    def _check(self) -> None:
        check_name("keep", self.keep, get_args(Keep))
        if self.keep != "none" and self.cwd is None:
            raise ValueError(
                f"keep={self.keep!r} needs cwd, the folder below which trials are kept"
            )
        if self.stdin is not None and not isinstance(self.stdin, str):
            raise TypeError(f"stdin must be a text with {{names}}, got {self.stdin!r:.200}")
        templates = [("command", word) for word in self.command[1:]]
        templates += [(f"env[{name!r}]", text) for name, text in self.env.items()]
        templates += [(f"input[{name!r}]", text) for name, text in self.input.items()]
        templates += [] if self.stdin is None else [("stdin", self.stdin)]
        self.variables.check(templates, all_used=self._json is not None)
        self._check_files()
        self._locate()

    def _check_files(self) -> None:
        names = [*self.input, *self.files, *([self._json] if self._json else [])]
        names += [] if self.output in _STREAMS else [self.output]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"input, files and output name the same file {twice[0]!r}")
        for name, source in self._sources.items():
            if not os.path.exists(source):
                raise FileNotFoundError(f"files[{name!r}]: there is no file {source}")
        if self.cwd is not None and not os.path.isdir(self.cwd):
            raise FileNotFoundError(f"cwd: there is no folder {self.cwd}; make it first")
        for word in self.command[1:]:
            if word not in names and PurePath(word).name == word and os.path.isfile(word):
                raise ValueError(
                    f"command: {word!r} is a file of the current folder, but the program runs in a "
                    f"folder of its own: write {os.path.abspath(word)!r}, or give it by files="
                    f"{{{word!r}: {word!r}}}; './{word}' if it is to be a new file there"
                )

    def _locate(self) -> str:
        """The program's file; an error that says what to do if there is none."""
        if self._found is None:
            self._found = shutil.which(self._program, path=self.env.get("PATH"))
        if self._found is not None:
            return self._found
        given = self.command[0]
        if os.sep not in given:
            near = (
                f"; for the one in this folder write './{given}'" if os.path.isfile(given) else ""
            )
            raise FileNotFoundError(
                f"command: no program {given!r} in the folders of PATH; give its path{near}"
            )
        if os.path.isfile(self._program):
            raise PermissionError(
                f"command: {self._program} may not be executed; use chmod +x, or name its "
                f"interpreter, as in ['python3', {self._program!r}, ...]"
            )
        raise FileNotFoundError(f"command: there is no program {self._program}")

    def _folder(self) -> str:
        prefix = "desopt-trial-" if self.keep == "none" else time.strftime("trial-%Y%m%d-%H%M%S-")
        return tempfile.mkdtemp(prefix=prefix, dir=self.cwd)

    def _evaluate(self, folder: str, values: dict[str, Any], record: dict[str, Any]) -> float:
        """Run the program in its folder; the value, or ``Failed`` with the reason."""
        words = [self.command[0], *(fill(word, values) for word in self.command[1:])]
        self._furnish(folder, values)
        record["command"] = words
        began = time.monotonic()
        ended = self._run(words, folder, values)
        record["seconds"] = time.monotonic() - began
        if self.keep != "none":
            _write(folder, "stdout.txt", ended.stdout)
            _write(folder, "stderr.txt", ended.stderr)
        try:
            if ended.code != 0:
                raise Failed(self._how(ended.code))
            try:
                return self._read(*self._text(folder, ended))
            except Failed as failure:
                raise Failed(f"{self.output}: {failure}") from None
        except Failed as failure:
            ends = [_end(name, getattr(ended, name)) for name in reversed(_STREAMS)]
            raise Failed("; ".join([str(failure), *filter(None, ends)])) from None

    def _furnish(self, folder: str, values: dict[str, Any]) -> None:
        """Put the files into the folder."""
        texts = {name: fill(text, values) for name, text in self.input.items()}
        if self._json is not None:
            texts[self._json] = json.dumps(self.variables.as_json(values)) + "\n"
        for name in (*texts, *self._sources):
            if os.sep in name:
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        for name, source in self._sources.items():
            os.symlink(source, os.path.join(folder, name))

    def _run(self, words: list[str], folder: str, values: dict[str, Any]) -> Ended:
        environment = os.environ | {name: fill(text, values) for name, text in self.env.items()}
        limits = [MOST if self.output == name else _TAIL for name in _STREAMS]
        program = self._locate()
        with self._launcher() as launcher, self._stdin(values) as stdin:
            try:
                return launcher.run(
                    program, words, environment, folder, stdin, self.timeout, (limits[0], limits[1])
                )
            except OSError as error:
                self._found = None  # it may have been moved
                self._locate()
                hint = _HINTS.get(error.errno or 0)
                raise OSError(
                    f"command: {program} cannot be started: {error.strerror or error}"
                    + (f"; {hint}" if hint else "")
                ) from error

    @contextmanager
    def _launcher(self) -> Iterator[Launcher]:
        """A launcher that nobody else uses now: threads may call us at once."""
        try:
            launcher = self._idle.pop()
        except IndexError:
            launcher = Launcher()
        if not launcher.alive:
            launcher.close()
            launcher = Launcher()
        idle = self._idle
        try:
            yield launcher
        finally:
            if launcher.alive:
                idle.append(launcher)
            else:
                launcher.close()

    @contextmanager
    def _stdin(self, values: dict[str, Any]) -> Iterator[int]:
        """A file, not a pipe: nobody has to feed it."""
        if self.stdin is None:
            with open(os.devnull, "rb") as nothing:
                yield nothing.fileno()
            return
        with tempfile.TemporaryFile() as file:
            file.write(fill(self.stdin, values).encode())
            file.seek(0)
            yield file.fileno()

    def _how(self, code: int | None) -> str:
        if code is None:
            return f"no end within timeout={self.timeout:g} s"
        if code > 0:
            return f"exit code {code}"
        with suppress(ValueError):
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"killed by signal {-code}"

    def _text(self, folder: str, ended: Ended) -> tuple[str, bool]:
        """The output with the value, and whether its beginning is missing."""
        if self.output in _STREAMS:
            content: bytes = getattr(ended, self.output)
            cut = ended.cut[_STREAMS.index(self.output)]
        else:
            content, cut = _file_end(os.path.join(folder, self.output))
        return content.decode(errors="replace"), cut


def _file_end(path: str) -> tuple[bytes, bool]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a named pipe would make us wait
            raise Failed("no regular file")
        with open(path, "rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - MOST)
            file.seek(start)
            return file.read(MOST), start > 0
    except OSError as error:
        raise Failed(error.strerror or "cannot be read") from None


def _end(name: str, content: bytes) -> str:
    """The last lines of an output, for a message."""
    lines = content[-4 * _WIDTH * _LINES :].decode(errors="replace").split("\n")
    text = " | ".join([line.strip() for line in lines if line.strip()][-_LINES:])[-_WIDTH:]
    shown = "".join(sign if sign.isprintable() else "?" for sign in text)
    return f"{name} ends with: {shown}" if shown else ""


def _write(folder: str, name: str, content: bytes) -> None:
    with suppress(OSError):  # the program has removed its folder
        Path(folder, f"desopt-{name}").write_bytes(content)


def _remove(folder: str) -> None:
    try:
        os.rmdir(folder)  # most programs leave no file
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.isdir(folder):  # the program made something read-only
            _permit(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _permit(folder: str) -> None:
    """Make a folder and those below it writable; not what links in it point to."""
    with suppress(OSError):
        os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        for path in below:
            _permit(path)


def _close_all(launchers: list[Launcher]) -> None:
    while launchers:
        launchers.pop().close()
