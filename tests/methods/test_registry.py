"""Every fact of a registry entry against the algorithm, the report and the documentation."""

import ast
import re
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import tables

import desopt
from desopt import LOSSES, METHODS
from desopt.contract.types import Batches
from desopt.methods import ProblemSize, make
from desopt.methods.registry import COMPARED, DASHES, MARKERS, Method
from desopt.report import names

K, LAMBDA = 24, 13
PAGE = Path(desopt.__file__).parent / "report" / "chart.js"


def made(name: str, **settings: Any) -> Any:
    return make(name, {"iterations": K, "population": LAMBDA} | settings)


def number(text: str) -> int:
    """``K + 1`` and the like as a number."""
    match = re.fullmatch(r"(\d*)(K|λ|)( \+ (\d+)|/(\d+))?", text)
    assert match, text
    value = int(match[1] or 1) * {"K": K, "λ": LAMBDA, "": 1}[match[2]]
    return value // int(match[5] or 1) + int(match[4] or 0)


@pytest.mark.parametrize(("name", "method"), METHODS.items())
def test_a_name_makes_its_algorithm(name: str, method: Method) -> None:
    algorithm = made(name)
    assert type(algorithm) is method.algorithm
    assert algorithm.name == name
    if method.sampler is not None:
        assert type(algorithm.sampler) is method.sampler


@pytest.mark.parametrize(("name", "method"), METHODS.items())
def test_contents_and_cost_of_an_answer(name: str, method: Method) -> None:
    algorithm = made(name)
    held = dict.fromkeys(("bits", "float32", "numbers"), 0)
    for part in method.answer.split(" and "):
        count, what = part.split()
        held[what] = number(count)
    layout = algorithm.layout
    assert (layout.bits, layout.float32, layout.float64) == tuple(held.values())
    assert algorithm.cost.most == number(method.values)


@pytest.mark.parametrize(("name", "method"), METHODS.items())
def test_minibatches_are_drawn_as_declared(name: str, method: Method) -> None:
    algorithm = made(name)
    declared = algorithm.search(algorithm.plan(algorithm.init(np.zeros(3))), 0).batches
    assert algorithm.cost.whole == (declared is Batches.ALL)
    drawn: list[Any] = []

    def fun(x: Any, batch: Any) -> float:
        drawn.append(batch.tobytes())
        return float(np.mean((batch - x) ** 2))

    data, workers = np.random.default_rng(0).normal(size=(60, 3)), 1 if method.single_worker else 3
    desopt.minimize(
        fun, np.ones(3), data, method=name, workers=workers, iterations=6, batch_size=5,
        rounds=2, step_size=0.01, perturbations=1, engine="serial", eval_every=0, progress=False,
    )  # fmt: skip
    rounds_and_iterations = 2 * (3 if method.pairs else 6)
    expected = {
        Batches.ROUND: 2 * workers,
        Batches.ITERATION: rounds_and_iterations * workers,
        Batches.ALL: workers,
    }
    assert len(set(drawn)) == expected[declared]


@pytest.mark.parametrize(("name", "method"), METHODS.items())
def test_odd_iterations_are_refused_where_values_come_in_pairs(name: str, method: Method) -> None:
    if method.pairs:
        with pytest.raises(ValueError, match=f"iterations must be even for {name}"):
            made(name, iterations=7)
    else:
        made(name, iterations=7)


def test_defaults_from_the_size_of_the_problem() -> None:
    """lambda = M K b / N = 10 * 24 * 50 / 600, and 4 + floor(3 ln 100) where that is larger."""
    problem = ProblemSize(n=100, rows=600, workers=10, iterations=K, batch_size=50)
    assert METHODS["es-csa"].derived(problem) == {"population": 20}
    chosen: Any = make("es-csa", {"population": None}, problem)
    assert chosen.population == 20
    assert make("es-csa", {"population": 6}, problem).settings()["population"] == 6
    for rows in (6_000_000, None):
        few = ProblemSize(n=100, rows=rows, workers=10, iterations=K, batch_size=50)
        assert METHODS["es-csa"].derived(few) == {"population": 17}
    populations = ("es-csa", "cma-es")
    assert METHODS["cma-es"].derived(problem) == {"population": 20}
    for n, least in ((6, 9), (1000, 63)):  # 4 + floor(3 ln n), or 2 sqrt(n)
        size = ProblemSize(n=n, rows=None, workers=1, iterations=K, batch_size=50)
        assert METHODS["cma-es"].derived(size) == {"population": least}
    assert METHODS["des-c"].derived(problem) == {"shares": (1,) * 10}
    assert METHODS["fedavg-es"].derived(problem) == {"population": 17}
    of_size = (*populations, "fedavg-es", "des-c", "zo-nsgd")
    assert all(
        not method.derived(problem) for name, method in METHODS.items() if name not in of_size
    )


def test_step_sizes_by_default() -> None:
    """zo-nsgd has its rule where an answer has room for what it measures."""

    def chosen(method: str, iterations: int, step_size: float | None = None) -> Any:
        problem = ProblemSize(n=9, rows=600, workers=4, iterations=iterations, batch_size=50)
        settings = {"iterations": iterations, "step_size": step_size}
        return make(method, settings, problem).settings()["step_size"]

    usual = dict.fromkeys(METHODS, 1.0) | {"des-c": 0.3, "zo-nsgd": "auto"}
    assert {name: chosen(name, 6) for name in METHODS} == usual
    assert chosen("zo-nsgd", 4) == 1.0
    assert chosen("zo-nsgd", 6, 0.5) == chosen("des-c", 6, 0.5) == 0.5

    own: Any = make_dataclass("Own", [("name", str), ("step_size", float)])
    made_of_own: Any = replace(METHODS["des"], algorithm=own, sampler=None).make("own", {})
    assert made_of_own.step_size == 1.0, "a class of the user's without a default"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown method 'des-rm'.*did you mean 'des-mr'"):
        make("des-rm", {})


def test_figures_tell_the_methods_apart() -> None:
    titles = [method.title for method in METHODS.values()]
    colours = [method.look.colour for method in METHODS.values()]
    lines = [(method.look.dash, method.look.marker) for method in METHODS.values()]
    for column in (titles, colours, lines):
        assert len(set(column)) == len(METHODS)
    page = PAGE.read_text(encoding="utf-8")
    for dash in DASHES:
        assert f'"{dash}": ' in page
    for marker in MARKERS:
        assert re.search(rf'[{{\s"]{re.escape(marker)}"?: "M', page), marker
    assert {dash for dash, _ in lines} <= set(DASHES)
    assert {marker for _, marker in lines} <= set(MARKERS)
    assert [names.method(name) for name in METHODS] == titles


def test_the_paper_compares_seven_methods() -> None:
    assert set(METHODS) - set(COMPARED) >= {"es"}
    assert len(COMPARED) == 7


#: The studies' own experiments and claims, the demo's, and the benchmark's baselines.
NAMING = (
    "studies/paper.py", "studies/demo.py", "report/claims.py", "bench/",
    "methods/registry.py", "objectives/losses.py",
    "studies/heterogeneity.py", "report/heterogeneity.py",
    "studies/rivals.py", "report/rivals.py", "studies/stepsize.py", "report/stepsize.py",
    "studies/bbob.py",
)  # fmt: skip


def named(node: ast.AST) -> set[Any]:
    """The methods and losses that a comparison or a literal of several things names."""
    parts: list[Any] = []
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        parts = node.elts
    elif isinstance(node, ast.Dict):
        parts = node.keys
    found = {part.value for part in parts if isinstance(part, ast.Constant)}
    return found & {*METHODS, *LOSSES}


def test_nothing_else_keeps_a_list_or_tests_a_name() -> None:
    package = Path(desopt.__file__).parent
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if not place.startswith(NAMING):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found = [(node.lineno, named(node)) for node in ast.walk(tree) if named(node)]  # type: ignore[attr-defined]
            assert not found, f"{place} names methods or losses: derive them from the registry"


def test_the_search_for_names_sees_them() -> None:
    for source in ("x == 'es'", "x in ('es', 'y')", "{'lr': 1}", "['des', z]", "{'nsvm'}"):
        assert any(named(node) for node in ast.walk(ast.parse(source))), source
    assert not any(named(node) for node in ast.walk(ast.parse("f(x='lr', y='other' == z)")))


def test_tables_of_the_documentation() -> None:
    """README: name, cost, answer. docs/journal.md: every kind of answer has a payload."""
    rows = tables.rows("README.md", "`method=`")
    assert {tables.name(row[0]): tuple(row[2:]) for row in rows} == {
        name: (method.values, method.answer) for name, method in METHODS.items()
    }
    payloads = [row[0] for row in tables.rows("docs/journal.md", "answer")]
    assert set(payloads) >= {method.answer for method in METHODS.values()}
