"""Every public name has a docstring and an example, and the examples are true."""

import doctest
import runpy
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import desopt

pytestmark = pytest.mark.docs
API = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "site" / "api.py"))
#: Modules about packages that need not be installed, and names of others.
NEEDS = {
    "desopt.federate": "flwr", "desopt.torch": "torch", "desopt.engines": "ray",
    "desopt.trackers": "wandb",
}  # fmt: skip
KNOWN = {
    "np": np, "desopt": desopt, "data": desopt.data, "streams": desopt.streams,
    "theory": desopt.theory,
}  # fmt: skip


def of_plain(module: str, name: str) -> str:
    """The docstring whose examples show a constant: that of its module."""
    text = API["module_of"](module).__doc__ or ""
    examples = doctest.DocTestParser().get_examples(text)
    assert any(name in example.source for example in examples), f"no example of {module}.{name}"
    return text


@pytest.mark.parametrize("module", API["MODULES"])
def test_examples_of_public_names_are_true(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = NEEDS.get(module)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    monkeypatch.chdir(tmp_path)
    faults: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for name, thing in API["public"](module).items():
        text = of_plain(module, name) if API["is_plain"](thing) else thing.__doc__ or ""
        test = doctest.DocTestParser().get_doctest(text, dict(KNOWN), name, None, 0)
        if not test.examples:
            faults.append(f"{module}.{name} has no example")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner.run(test, out=faults.append)
    assert not faults, "\n".join(faults)
