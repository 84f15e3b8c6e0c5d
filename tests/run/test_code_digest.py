"""Other code has another digest, and the same code the same one wherever it stands."""

import functools
import math
import os
import subprocess
import sys
import textwrap
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from test_hostile_journal import header, opened, sealed

import desopt
from desopt.methods.samplers import Sampler
from desopt.run import journal
from desopt.run.code_digest import code_digest


def compiled(source: str, name: str = "f", file: str = "somewhere.py") -> Any:
    """What the source defines, as a module of its own."""
    module = types.ModuleType("user")
    exec(compile(textwrap.dedent(source), file, "exec"), module.__dict__)
    return getattr(module, name)


BASE = """
    import numpy as np
    SCALE = 2.0
    def helper(x):
        return x + 1
    class Cost:
        def __init__(self, a): self.a = a
        def __call__(self, x): return self.value(x)
        def value(self, x): return 3 * x
        @staticmethod
        def twice(x): return 2 * x
        @property
        def half(self): return 0.5
    class Sub(Cost):
        pass
    def made(c):
        def inner(x):
            return c * x
        return inner
    def f(x, power=2, *, shift=1.0):
        "Documented."
        inside = {v for v in range(3) if v in {1, 2, "a", "b"}}
        return SCALE * helper(x) ** power + shift + np.sum((lambda y: y + 1)(x)) + len(inside)
    g = made(4)
    cost = Sub(1)
    method = cost.value
"""

#: (name of what is digested, what is replaced, by what)
OTHER = [
    ("f", "** power", "** power * 1"), ("f", "SCALE = 2.0", "SCALE = 2"), ("f", "y + 1", "y + 2"),
    ("f", "power=2", "power=3"), ("f", "shift=1.0", "shift=1"), ("f", "range(3)", "range(4)"),
    ("f", "return x + 1", "return x - 1"), ("f", '"b"}', '"c"}'), ("f", "np.sum", "np.max"),
    ("f", "x, power=2, *,", "x, *, power=2,"), ("f", "power", "exponent"),
    ("g", "made(4)", "made(5)"), ("g", "c * x", "x * c"),
    ("cost", "3 * x", "4 * x"), ("cost", "self.value(x)", "self.value(x) + 1"),
    ("cost", "return 2 * x", "return 5 * x"), ("cost", "return 0.5", "return 0.25"),
    ("cost", "        pass", "        def value(self, x): return 9"), ("cost", "Sub", "Other"),
    ("method", "3 * x", "4 * x"), ("Cost", "3 * x", "4 * x"), ("made", "c * x", "c + x"),
]  # fmt: skip
SAME = [
    ("f", "Documented.", "In other words."), ("f", "import numpy as np", "import numpy as np\n\n"),
    ("f", "3 * x", "4 * x"), ("cost", "SCALE = 2.0", "SCALE = 3.0"), ("cost", "Sub(1)", "Sub(2)"),
    ("g", "def f(", "def other(y): pass\n    def f("), ("g", "inner", "within"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), OTHER)
def test_other_code(name: str, old: str, new: str) -> None:
    assert old in BASE
    one, other = compiled(BASE, name), compiled(BASE.replace(old, new), name)
    assert code_digest(one) != code_digest(other)
    assert None not in (code_digest(one), code_digest(other))


@pytest.mark.parametrize(("name", "old", "new"), SAME)
def test_same_code(name: str, old: str, new: str) -> None:
    assert old in BASE
    one = compiled(BASE, name)
    other = compiled("\n\n\n" + BASE.replace(old, new), name, "/else/where.py")
    assert code_digest(one) == code_digest(other)
    assert code_digest(one) is not None


def test_wrappers() -> None:
    f, other = compiled(BASE), compiled(BASE.replace("** power", "+ power"))
    wrappers: list[Callable[..., Any]] = [
        functools.partial, lambda f: functools.partial(f, 3), functools.lru_cache, np.vectorize,
        lambda f: functools.wraps(f)(lambda *a: f(*a)), lambda f: functools.partial(f, shift=3.0),
        numba.njit,
    ]  # fmt: skip
    for wrap in wrappers:
        one, again, changed = (code_digest(wrap(each)) for each in (f, f, other))
        assert one == again
        assert one != changed
        assert one is not None
    assert code_digest(functools.partial(f, 3)) != code_digest(functools.partial(f, 4))
    assert code_digest(functools.partial(f, shift=3)) != code_digest(functools.partial(f, shift=4))


def test_what_changes_during_a_run_does_not_count() -> None:
    calls, seen, buffer = 0, list[Any](), np.zeros(3)

    def counted(x: Any) -> float:
        nonlocal calls
        calls += 1
        seen.append(x)
        buffer[0] = calls
        return float(x @ x)

    before = code_digest(counted)
    counted(np.ones(2))
    assert before is not None
    assert code_digest(counted) == before
    counter = compiled("COUNT = 0\ndef f(x):\n    global COUNT\n    COUNT += 1\n    return x\n")
    before = code_digest(counter)
    counter(1)
    assert code_digest(counter) == before


class Odd:
    """Raises at every look."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self) -> None: ...


def wrapped(inner: Any) -> Callable[[Any], Any]:
    return lambda x: inner(x)


def test_anything_can_be_asked_for() -> None:
    """Builtins by name; what cannot be had is absent; recursion ends."""
    assert code_digest(math.sqrt) != code_digest(math.sin)
    assert code_digest(math.sqrt) == code_digest(math.sqrt)
    assert code_digest(np.ones(3).__getitem__) is not None
    source = "def f(x):\n    return f(x - 1) if x else g(x)\ndef g(x):\n    return f(x)\n"
    assert code_digest(compiled(source)) is not None
    odd: list[Any] = [
        Odd(), object(), None, 3, np, np.add, len, type, int, print, [1], "".join, property(),
        iter(()), functools.singledispatch(len), NotImplemented,
    ]  # fmt: skip
    for thing in odd:
        code_digest(thing)
    deep: Any = compiled("def f(x):\n    return x")
    for _ in range(5000):
        deep = wrapped(deep)
    assert code_digest(deep) is None


def test_equal_in_every_process(tmp_path: Path) -> None:
    """Whatever the seed of hashes is, and wherever the file lies."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import user\n"
        "from desopt.run.code_digest import code_digest\n"
        "print(*[code_digest(getattr(user, name)) for name in ('f', 'g', 'cost')])"
    )
    found = set()
    for seed in ("0", "1", "77"):
        folder = tmp_path / seed
        folder.mkdir()
        (folder / "user.py").write_text("\n" * int(seed) + textwrap.dedent(BASE))
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=300,
            env=os.environ | {"PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
    assert "None" not in found.pop()


# --- a run that is resumed -------------------------------------------------------------------

FUN = "def f(x, batch, *more):\n    return float(((batch - x) ** 2).mean())\n"
SETUP = "def f():\n    return 1\n"
LOAD = "import numpy as np\ndef f(worker):\n    return np.arange(6.0).reshape(3, 2) + worker\n"
FIRST = "import numpy as np\ndef f():\n    return np.arange(6.0).reshape(3, 2)\n"
DRAW = "def f(rng, b):\n    return rng.standard_normal((b, 2))\n"
STEPS = "def f(rng, n):\n    return rng.standard_normal(n)\n"


class Steps(Sampler):
    def vector(self, key: Any, k: int, n: int) -> Any:
        return None, np.ones(n)


class OtherSteps(Sampler):
    def vector(self, key: Any, k: int, n: int) -> Any:
        return None, -np.ones(n)


OtherSteps.__name__ = OtherSteps.__qualname__ = "Steps"


def run(path: Path | None, **changes: Any) -> desopt.Result:
    given = {"fun": FUN, "data": LOAD, "setup": None, "sampler": None} | changes
    made = {k: compiled(v) if isinstance(v, str) else v for k, v in given.items()}
    if isinstance(made["data"], list):
        made["data"] = [compiled(each) for each in made["data"]]
    options = {"rounds": 4} | made
    return desopt.minimize(
        x0=[0.0, 0.0], journal=path, workers=2, iterations=4, batch_size=3, engine="serial",
        method="des", progress=False, **options,
    )  # fmt: skip


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fun": ({}, {"fun": FUN.replace("mean", "sum")}),
    "setup": ({"setup": SETUP}, {"setup": SETUP.replace("1", "2")}),
    "setup ": ({}, {"setup": SETUP}),
    "loader": ({}, {"data": LOAD.replace("+ worker", "- worker")}),
    "loader ": ({"data": [FIRST, FIRST]}, {"data": [FIRST, FIRST.replace("6.0", "0.0, 6.0")]}),
    "draw": ({"data": DRAW}, {"data": DRAW.replace("standard_normal", "random")}),
    "sampler": ({"sampler": STEPS}, {"sampler": STEPS.replace("(n)", "(n) * 1.5")}),
    "sampler ": ({"sampler": Steps()}, {"sampler": OtherSteps()}),
    "fun, loader": ({}, {"fun": FUN.replace("mean", "sum"), "data": LOAD.replace("+", "-")}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_code_is_a_warning_that_names_it(name: str, tmp_path: Path) -> None:
    before, change = CHANGES[name]
    path = tmp_path / "j"
    run(path, rounds=2, **before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(path, rounds=3, **before)
    with pytest.warns(RuntimeWarning, match=f"began with other code of {name.strip()};") as caught:
        result = run(path, **before | change)
    assert result.nit == 4
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_replay_with_another_sampler_warns(tmp_path: Path) -> None:
    path = tmp_path / "j"
    result = run(path, sampler=STEPS)
    assert desopt.replay(path, sampler=compiled(STEPS)).tobytes() == result.x.tobytes()
    with pytest.warns(RuntimeWarning, match="other code of sampler") as caught:
        desopt.replay(path, sampler=compiled(STEPS.replace("(n)", "(n) * 2")))
    assert caught[0].filename == __file__


def test_another_python_or_an_older_journal_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    run(path, rounds=2)
    records = opened(path.read_bytes())
    changes: list[Callable[[Any], Any]] = [
        lambda h: h["versions"].update(python="2.7.1"), lambda h: h.pop("code") and None,
        lambda h: h.update(code=[1]),
    ]  # fmt: skip
    for change in changes:
        path.write_bytes(sealed(header(change)(records)))
        assert run(path, fun=FUN.replace("mean", "sum")).nit == 4


def test_built_in_parts_have_no_code_of_the_user(tmp_path: Path) -> None:
    X = np.arange(20.0).reshape(10, 2)
    desopt.minimize("lr", None, (X, X[:, 0] > 5), rounds=1, iterations=2, workers=2,
                    engine="serial", journal=tmp_path / "j", progress=False)  # fmt: skip
    assert journal.read(tmp_path / "j").header["code"] == {}
