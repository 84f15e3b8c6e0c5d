"""The command ``desopt`` in this process: a new one takes seconds to import what is here."""

import io
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from desopt.cli import options
from desopt.cli.app import main


def call(*words: object, cwd: Path | None = None, stdin: str = "") -> CompletedProcess[str]:
    """Its exit code and what it prints, as if a shell had started it in ``cwd``.

    Warnings are lines on stderr, as for a user, not the errors that they are in tests.
    """
    out, err = io.StringIO(), io.StringIO()
    argv = ["desopt", *map(str, words)]
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)
        patch.setattr(sys, "argv", argv)
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(options, "debug", False)
        if cwd is not None:
            patch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            main()
    code = ended.value.code or 0
    assert isinstance(code, int), code
    return CompletedProcess(argv, code, out.getvalue(), err.getvalue())
