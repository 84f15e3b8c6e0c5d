"""Same seed, same bits of x and of every loss, on any engine, CPU and cache, from any memory.

``tests/golden/runs.json`` is what every machine must reproduce. A change of it is a change of bits:
raise ``streams.STREAM_VERSION``, and say so in the changelog. See ``tests/helpers/bits.py``.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from helpers import bits

import desopt

GOLDEN = bits.kept()
CASES = {name: arguments for name, arguments in bits.cases() if name in GOLDEN}
GOLDEN_METHODS = list(dict.fromkeys(arguments["method"] for arguments in CASES.values()))
GOLDEN_LOSSES = [loss for loss in desopt.LOSSES if f"des dense {loss}" in CASES]

#: What a CPU must have to run the code compiled for another one.
_AVX2 = ("avx2", "bmi", "bmi2", "fma", "f16c", "lzcnt", "movbe")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
TARGETS = {"x86-64-v2": ("sse4.2", "popcnt"), "haswell": _AVX2, "skylake-avx512": _AVX512}


def _cpu(name: str) -> dict[str, str]:
    """The environment that makes numba compile for this CPU, where it can run here."""
    if platform.machine() != "x86_64":
        pytest.skip(f"{name} is an x86 CPU, this is {platform.machine()}")
    here = llvm.get_host_cpu_features()
    missing = [feature for feature in TARGETS[name] if not here.get(feature)]
    if missing:
        pytest.skip(f"code for {name} does not run here: no {', '.join(missing)}")
    return {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""}


def _elsewhere(cache: Path, *arguments: str, **env: str) -> dict[str, str]:
    """The digests that another process finds, with a cache folder of its own."""
    done = subprocess.run(
        [sys.executable, str(Path(bits.__file__)), *arguments],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), **env},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


#: What the C library of a machine computes, each to a last bit of its own.
LIBM = re.compile(
    r"(arc|a)?(cos|sin|tan)h?2?|exp(2|m1)?|log(10|1p|2)?|cbrt|erfc?|l?gamma|hypot|pow|(float_)?power"
)


def libm_calls(source: str) -> list[str]:
    """The places that leave a rounding to the C library: its functions, and powers of floats."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("math", "np") and LIBM.fullmatch(node.attr):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            base = ast.unparse(node.left)
            if base not in ("2", "2.0") and not base.startswith("Fraction("):  # these are exact
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("folder", ["contract", "kernels", "methods"])
def test_no_rounding_is_left_to_the_c_library(folder: str) -> None:
    """log, exp and normals are those of ``kernels.portable``; a square is a product."""
    sources = sorted((Path(desopt.__file__).parent / folder).rglob("*.py"))
    assert sources
    found = {path.name: libm_calls(path.read_text(encoding="utf-8")) for path in sources}
    assert {name: places for name, places in found.items() if places} == {}


def test_the_check_sees_what_it_looks_for() -> None:
    assert (
        len(libm_calls("a = math.exp(1) + np.power(2, x)\nb = (n + 1.3) ** 2\nc = x ** -0.5")) == 4
    )
    assert libm_calls("a = math.sqrt(2.0) + 2.0**-k + math.ldexp(1.0, 3)") == []


def test_every_golden_run_can_be_repeated() -> None:
    assert GOLDEN.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_serial(name: str) -> None:
    assert bits.digest(bits.run(engine="serial", **CASES[name])) == GOLDEN[name]


@pytest.mark.parametrize("name", [name for name in CASES if "callable" not in name])
def test_threads(name: str) -> None:
    assert bits.digest(bits.run(engine="threads", jobs=2, **CASES[name])) == GOLDEN[name]


@pytest.mark.cpus  # they take two seconds to start; test_engines.py has processes beside serial
@pytest.mark.parametrize("method", GOLDEN_METHODS)
def test_processes(method: str) -> None:
    layout = ("dense", "csr")[GOLDEN_METHODS.index(method) % 2]
    name = f"{method} {layout} lr"
    assert bits.digest(bits.run(engine="processes", jobs=1, **CASES[name])) == GOLDEN[name]


@pytest.mark.parametrize("variant", [name for name in bits.VARIANTS if name != "as-given"])
@pytest.mark.parametrize("layout", bits.LAYOUTS)
@pytest.mark.parametrize("method", GOLDEN_METHODS)
def test_the_memory_of_the_data(method: str, layout: str, variant: str) -> None:
    for loss in GOLDEN_LOSSES:
        name = f"{method} {layout} {loss}"
        assert bits.digest(bits.run(variant, engine="serial", **CASES[name])) == GOLDEN[name]


@pytest.mark.timeout(900)
@pytest.mark.cpus
@pytest.mark.parametrize("target", TARGETS)
def test_another_cpu(target: str, tmp_path: Path) -> None:
    """All of it compiled anew for another CPU, with an empty cache."""
    assert _elsewhere(tmp_path, **_cpu(target)) == GOLDEN


@pytest.mark.timeout(900)
@pytest.mark.cpus
def test_a_cold_and_a_warm_cache(tmp_path: Path) -> None:
    """What is inlined depends on what comes from the cache; the bits must not."""
    for only in ("fed-zo-gd csr ", "fed-zo-sgd csr ", "fed-zo"):
        found = _elsewhere(tmp_path, "--only", only)
        assert found == {name: GOLDEN[name] for name in found}
        assert found
