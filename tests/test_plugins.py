"""Methods, samplers and objectives of a user's own work by name wherever the built-in ones do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command import call
from numpy.typing import NDArray

import desopt
from desopt import plugins, testing
from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, Batches, Task
from desopt.methods import DES, METHODS, ProblemSize
from desopt.methods.base import BaseAlgorithm, PointState, unmoved
from desopt.methods.samplers import SAMPLERS, CustomSampler, Gaussian, Key, Sampler
from desopt.methods.searches import OnePlusOne
from desopt.objectives import OBJECTIVES, LinearModel
from desopt.objectives.scoring import LabelledRows
from desopt.protocol import wire
from desopt.protocol.replica import Replica

Vector = NDArray[np.float64]

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((40, 5))
Y = np.where(X @ RANDOM.standard_normal(5) > 0, 1.0, -1.0)
SETTINGS: dict[str, Any] = {
    "workers": 3, "rounds": 4, "iterations": 6, "batch_size": 8, "step_size": 0.4, "seed": 7,
    "engine": "serial", "progress": False,
}  # fmt: skip

#: A plug-in as a user writes it: a method, a sampler and an objective.
PLUGIN = '''
from dataclasses import dataclass, field

import numpy as np

import desopt
from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Batches
from desopt.methods.base import BaseAlgorithm, PointState, finite_or, unmoved
from desopt.methods.samplers import Key, MixtureRademacher, Sampler
from desopt.methods.searches import OnePlusOne, affordable


@dataclass(frozen=True, kw_only=True)
class BestWorker(BaseAlgorithm):
    """The first worker's point is the next x."""

    name: str = "first-worker"
    sampler: Sampler = field(default_factory=MixtureRademacher)
    patience: int = 3  # a setting that minimize does not know

    @property
    def layout(self):
        return Layout(bits=self.iterations)

    @property
    def cost(self):
        return Cost(2, self.iterations + 1)

    def search(self, task, worker):
        alpha = np.full(affordable(self.iterations, task.limit, first=1), self.step_size)
        proposals = self.sampler.proposals(alpha, Key(self.seed, task.round, worker), task.x.size)
        return OnePlusOne(task, worker, proposals, layout=self.layout, batches=Batches.ROUND,
                          dense=self.sampler.dense)

    def merge(self, state, answers):
        given = list(answers)
        if not given:
            return unmoved(state)
        v, alpha = state.x.copy(), np.full(self.iterations, self.step_size)
        accepted = self.layout.decode(given[0]).bits
        self.sampler.replay(v, alpha, accepted, Key(self.seed, state.round, given[0].worker))
        return PointState(state.round + 1, finite_or(v, state.x))


def signs(rng, n):
    return rng.choice([-1.0, 1.0], n)


def squared_hinge(x, batch):
    X, y = batch
    return float(np.mean(np.maximum(0.0, 1.0 - y * (X @ x)) ** 2))


desopt.register("method", "first-worker", BestWorker, title="First worker")
desopt.register("sampler", "signs", signs)
desopt.register("objective", "squared-hinge", squared_hinge)
'''


@contextmanager
def all_forgotten() -> Iterator[None]:
    """As in a process of its own: what is registered in this block is gone after it."""
    registries: list[dict[Any, Any]] = [METHODS, SAMPLERS, OBJECTIVES, plugins._ours]
    before = [dict(registry) for registry in registries]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(plugins.VARIABLE, raising=False)
        patch.setattr(sys, "path", list(sys.path))
        yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)
    os.environ.pop(plugins.VARIABLE, None)
    sys.modules.pop("my_plugin", None)


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    with all_forgotten():
        yield


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with my_plugin.py, which is the current one."""
    (tmp_path / "my_plugin.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(fun: Any = "lr", **settings: Any) -> desopt.Result:
    return desopt.minimize(fun, np.zeros(5), (X, Y), **(SETTINGS | settings))


# --- by name, wherever there are names -------------------------------------------------------


def test_everything_by_name(plugin: Path) -> None:
    assert plugins.load(["my_plugin"]) == ["my_plugin"]
    result = run("squared-hinge", method="first-worker", sampler="signs")
    module = sys.modules["my_plugin"]
    method = module.BestWorker(
        iterations=6, step_size=0.4, seed=7, sampler=CustomSampler(module.signs)
    )
    direct = run(module.squared_hinge, method=method, iterations=100, step_size=None)
    assert result.x.tobytes() == direct.x.tobytes()
    assert result.x.any()
    assert METHODS["first-worker"].title == "First worker"
    testing.check_method(METHODS["first-worker"].make("first-worker", {"iterations": 6}))


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_same_bits_on_engines(plugin: Path, engine: str) -> None:
    plugins.load(["my_plugin"])
    names: dict[str, Any] = {"method": "first-worker", "sampler": "signs"}
    serial = run("squared-hinge", **names)
    other = run("squared-hinge", **names | {"engine": engine, "jobs": 2})
    assert serial.x.tobytes() == other.x.tobytes()


def test_replay_and_resume_by_name(plugin: Path) -> None:
    plugins.load(["my_plugin"])
    names: dict[str, Any] = {"method": "first-worker", "sampler": "signs", "journal": plugin / "j"}
    half = run("squared-hinge", rounds=2, **names)
    assert desopt.replay(plugin / "j").tobytes() == half.x.tobytes()
    resumed = run("squared-hinge", **names)
    assert resumed.nit == 4
    assert resumed.x.tobytes() == run("squared-hinge", **names | {"journal": None}).x.tobytes()
    assert desopt.replay(plugin / "j").tobytes() == resumed.x.tobytes()


def test_another_process_replays_after_importing_the_plug_in(plugin: Path) -> None:
    plugins.load(["my_plugin"])
    result = run(method="first-worker", journal=plugin / "j")

    def replay(first: str) -> subprocess.CompletedProcess[str]:
        code = f"{first}import desopt; print(desopt.replay('j').tobytes().hex())"
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=900, cwd=plugin
        )

    assert replay("import my_plugin; ").stdout.strip() == result.x.tobytes().hex()
    without = replay("")
    assert without.returncode == 1
    assert "method 'first-worker' is not one of" in without.stderr
    assert "import the plug-in that registers it" in without.stderr


def test_a_node_joins_by_the_names_in_a_description(plugin: Path) -> None:
    """What a federation's node does with the description that the server sends."""
    plugins.load(["my_plugin"])
    from desopt.engines import Job
    from desopt.engines.base import describe

    algorithm = METHODS["first-worker"].make("first-worker", {"sampler": SAMPLERS["signs"]()})
    objective = OBJECTIVES["squared-hinge"](0.0, None)
    job = Job(algorithm, objective, [None] * 3, 8, 7, 5)  # type: ignore[list-item]
    description = wire.pack_description(bytes(8), describe(job, np.zeros(5)))
    assert Replica.joining(description).algorithm.settings() == algorithm.settings()


# --- commands --------------------------------------------------------------------------------


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In the current folder, and as in a process of its own."""
    with all_forgotten(), pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return call(*arguments)


@pytest.fixture
def data(plugin: Path) -> str:
    lines = (f"{y:+g}," + ",".join(map(str, x)) for x, y in zip(X, Y, strict=True))
    (plugin / "mine.csv").write_text("label,a,b,c,d,e\n" + "\n".join(lines) + "\n")
    return "mine.csv"


def test_run_resume_and_replay(data: str) -> None:
    names = ("--loss", "squared-hinge", "--method", "first-worker", "--sampler", "signs")
    common = ("--data", data, "--workers", "3", "--iterations", "6", "--batch-size", "8")
    new = ("run", *common, "--out", "mine", "--rounds", "2")
    done = command(*new, *names)
    assert done.returncode == 1
    assert "first-worker" in done.stderr or "squared-hinge" in done.stderr
    real = [sys.executable, "-m", "desopt", *new, *names, "--plugin", "my_plugin"]
    subprocess.run(real, check=True, timeout=900)
    assert '"plugin": [\n  "my_plugin"\n ]' in Path("mine/settings.json").read_text()
    resumed = command("run", "--resume", "--out", "mine", "--rounds", "4")
    assert resumed.returncode == 0, resumed.stderr
    x = np.load("mine/x.npy")
    whole = command(
        "run", *common, "--out", "whole", "--rounds", "4", *names, "--plugin", "my_plugin"
    )
    assert whole.returncode == 0, whole.stderr
    assert np.load("whole/x.npy").tobytes() == x.tobytes()
    replayed = command("replay", "mine/run.journal", "--plugin", "my_plugin", "--out", "again.npy")
    assert replayed.returncode == 0, replayed.stderr
    assert np.load("again.npy").tobytes() == x.tobytes()
    without = command("replay", "mine/run.journal")
    assert without.returncode == 1
    assert "import the plug-in that registers it" in without.stderr
    by_variable = command("replay", "mine/run.journal", DESOPT_PLUGINS="my_plugin")
    assert by_variable.returncode == 0, by_variable.stderr


STUDY = """
name = "mine"
data = ["mine.csv"]
problems = ["lr", "squared-hinge"]
methods = ["des-mr", "first-worker"]
workers = 2
iterations = 6
batch_size = 8
rounds = 2
"""


@pytest.mark.parametrize("by", ["option", "file"])
def test_suite_and_report(data: str, by: str) -> None:
    Path("mine.toml").write_text(STUDY + ('plugins = ["my_plugin"]\n' if by == "file" else ""))
    options = ("--plugin", "my_plugin") if by == "option" else ()
    done = command("suite", "mine.toml", "--jobs", "1", *options)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 cases done" in done.stdout
    exported = command("suite", "mine.toml", "--csv", *options)
    assert exported.returncode == 0, exported.stderr
    if by == "option":
        without = command("suite", "mine.toml", "--jobs", "1")
        assert without.returncode == 1
        assert "unknown method 'first-worker'" in without.stderr


def test_scores_of_an_objective_of_ones_own(plugin: Path) -> None:
    """Loss by the objective, errors by the side of the hyperplane."""
    plugins.load(["my_plugin"])
    rows = LabelledRows(X, Y)
    x = np.linspace(-1.0, 1.0, 5)
    loss, errors = rows.score(x, "squared-hinge", 0.0)
    assert loss == sys.modules["my_plugin"].squared_hinge(x, (X, Y))
    assert errors == rows.score(x, "lr", 0.0)[1] == np.sum(np.sign(X @ x) != Y)


# --- kinds of things -------------------------------------------------------------------------


class Shifted(Sampler):
    """A class with a parameter."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def vector(self, key: Key, k: int, n: int) -> Any:
        return None, self.scale * Gaussian().vector(key, k, n)[1]

    def settings(self) -> dict[str, Any]:
        return {"name": "shifted", "scale": self.scale}


def test_a_sampler_class(tmp_path: Path) -> None:
    desopt.register("sampler", "shifted", Shifted)
    by_name = run(method="des", sampler="shifted")
    assert by_name.x.tobytes() == run(method="des").x.tobytes()
    half = run(method="des", sampler=Shifted(0.5), journal=tmp_path / "j")
    assert desopt.replay(tmp_path / "j").tobytes() == half.x.tobytes()
    assert half.x.tobytes() != by_name.x.tobytes()


@dataclass(frozen=True)
class Scaled(Sampler):
    """A dataclass, whose fields are its settings, but for what JSON cannot hold."""

    scale: float = 1.0
    extra: Any = np.array

    def vector(self, key: Key, k: int, n: int) -> Any:
        return None, self.scale * Gaussian().vector(key, k, n)[1]


def test_a_sampler_with_fields(tmp_path: Path) -> None:
    desopt.register("sampler", "Scaled", Scaled)
    half = run(method="des", sampler=Scaled(0.5), journal=tmp_path / "j")
    assert desopt.replay(tmp_path / "j").tobytes() == half.x.tobytes()
    with pytest.raises(desopt.JournalError, match=r"scale is 0.5 in the journal and 1.0 here"):
        run(method="des", sampler=Scaled(), journal=tmp_path / "j", rounds=9)
    numpys = Scaled(np.float32(0.5))  # type: ignore[arg-type]
    assert numpys.settings() == Scaled(0.5).settings() == {"name": "Scaled", "scale": 0.5}


@dataclass(frozen=True)
class Described(Scaled):
    def settings(self) -> dict[str, Any]:
        return super().settings() | {"extra": self.extra.tolist()}


def test_a_sampler_with_a_field_that_its_settings_lack(tmp_path: Path) -> None:
    """Another array would go on with the same journal."""
    with pytest.raises(
        TypeError, match=r"Scaled: extra is neither .* array\(\[1\., 2\.\]\); define"
    ):
        run(method="des", sampler=Scaled(extra=np.array([1.0, 2.0])), journal=tmp_path / "j")
    run(method="des", sampler=Described(extra=np.ones(2)), journal=tmp_path / "k")
    with pytest.raises(desopt.JournalError, match=r"extra is \[1.0, 1.0\] in the journal"):
        run(method="des", sampler=Described(extra=np.zeros(2)), journal=tmp_path / "k", rounds=9)


@dataclass(frozen=True, kw_only=True)
class Weighted(DES):
    name: str = "weighted"
    weights: Any = (1.0, 2.0)


def weighted(weights: Any) -> Weighted:
    return Weighted(iterations=6, step_size=0.4, seed=7, weights=weights)


def test_a_method_with_a_tuple_goes_on(tmp_path: Path) -> None:
    """A journal has a list."""
    journal, method = tmp_path / "j", weighted((1.0, 2.0))
    run(method=method, rounds=2, journal=journal)
    result = run(method=method, rounds=4, journal=journal)
    assert result.x.tobytes() == run(method=method, rounds=4).x.tobytes()
    assert desopt.replay(journal, method=method).tobytes() == result.x.tobytes()
    with pytest.raises(desopt.JournalError, match=r"weights is \[1.0, 2.0\] .* \[1.0, 3.0\] here"):
        run(method=weighted((1.0, 3.0)), rounds=5, journal=journal)


def test_a_setting_that_no_journal_can_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"method's setting weights .* ndarray .* plain JSON"):
        run(method=weighted(np.ones(2)), journal=tmp_path / "j")


@dataclass(frozen=True)
class Mine(LinearModel):
    """A class that takes the penalty."""

    loss: str = "lr"

    def settings(self) -> dict[str, Any]:
        return {"name": "mine", "penalty": self.penalty}


def test_an_objective_class_receives_the_penalty() -> None:
    desopt.register("objective", "mine", Mine)
    for penalty in (0.0, 3.0):
        ours = run("mine", regularization=penalty)
        assert ours.x.tobytes() == run("lr", regularization=penalty).x.tobytes()


def test_an_objective_object() -> None:
    desopt.register("objective", "mine", Mine(penalty=3.0))
    assert run("mine").x.tobytes() == run("lr", regularization=3.0).x.tobytes()


def test_setup_reaches_a_registered_function() -> None:
    desopt.register("objective", "shift", lambda x, batch, shift: float(((x - shift) ** 2).sum()))
    assert run("shift", setup=lambda: 1.0, rounds=30).fun < 0.1


@dataclass(frozen=True, kw_only=True)
class Populated(BaseAlgorithm):
    name: str = "populated"
    population: int
    layout = Layout(bits=1)
    cost = Cost(2, 2)

    def search(self, task: Task, worker: int) -> OnePlusOne:
        steps = Gaussian().proposals(np.ones(1), Key(self.seed, task.round, worker), task.x.size)
        return OnePlusOne(
            task, worker, steps, layout=self.layout, batches=Batches.ROUND, dense=True
        )

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        list(answers)
        return unmoved(state)


def test_defaults_from_the_size_of_the_problem() -> None:
    seen: list[ProblemSize] = []

    def defaults(problem: ProblemSize) -> dict[str, Any]:
        seen.append(problem)
        return {"population": problem.n + 1}

    desopt.register("method", "populated", Populated, defaults=defaults)
    run(method="populated", iterations=1)
    assert (seen[0].n, seen[0].rows, seen[0].workers) == (5, 40, 3)
    assert METHODS["populated"].make("populated", {}, seen[0]).settings()["population"] == 6


def test_a_method_is_an_algorithm_with_a_sampler() -> None:
    desopt.register("sampler", "shifted", Shifted)
    desopt.register("method", "des-shifted", DES, sampler=Shifted)
    named = run(method="des-shifted")
    assert named.x.tobytes() == run(method="des", sampler="shifted").x.tobytes()
    testing.check_method(METHODS["des-shifted"].make("des-shifted", {"iterations": 6}))


class OneCoordinate(Sampler):
    """A sparse sampler without a mixture."""

    dense = False

    def vector(self, key: Key, k: int, n: int) -> Any:
        return np.array([k % n]), np.array([float(n) ** 0.5])

    def settings(self) -> dict[str, Any]:
        return {"name": "one-coordinate"}


def test_a_sparse_sampler_needs_no_mixture() -> None:
    desopt.register("method", "des-one", DES, sampler=OneCoordinate)
    result = desopt.minimize("lr", None, (X, Y), method="des-one", **SETTINGS)
    assert result.nit == SETTINGS["rounds"]


def test_looks_differ() -> None:
    for name in ("one", "two", "three"):
        desopt.register("method", name, Populated)
    desopt.register("method", "four", Populated, look=("#123456", "-", "o"))
    assert len({METHODS[name].look for name in ("one", "two", "three", "four")}) == 4
    assert METHODS["four"].look.colour == "#123456"
    before = METHODS["one"].look
    desopt.register("method", "one", Populated)
    assert METHODS["one"].look == before


# --- errors ----------------------------------------------------------------------------------


class NoMerge:
    state_type = layout = cost = name = None

    def init(self) -> None: ...
    def plan(self) -> None: ...
    def work(self) -> None: ...
    def settings(self) -> None: ...


class NoField:
    state_type = layout = cost = init = plan = work = merge = settings = None


class NoDefaults(Shifted):
    def __init__(self, scale: float) -> None:
        super().__init__(scale)


class Unbound:
    compiled = False

    def bind(self) -> None: ...
    def settings(self) -> dict[str, Any]:
        return {"name": "mine"}


def other(x: Vector) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("engine", "mine", other), "unknown kind 'engine': choose from method, sampler"),
        (("method", "des-mr", Populated), "'des-mr' is taken by desopt"),
        (("method", "auto", Populated), "'auto' is taken by desopt"),
        (("objective", "lr", other), "'lr' is taken by desopt"),
        (("sampler", "Gaussian", Shifted), "'Gaussian' is taken by desopt"),
        (("method", "a,b", Populated), "letters, digits"),
        (("method", "", Populated), "letters, digits"),
        (("method", 3, Populated), "got 3"),
        (("method", "mine", NoMerge), "NoMerge has no merge; it needs state_type, layout"),
        (("method", "mine", NoField), "must be a frozen dataclass with a field 'name'"),
        (("method", "mine", Populated(population=3)), r"minimize\(method=...\) as it is"),
        (("sampler", "mine", Shifted), "has the name 'shifted'.*register it as 'shifted'"),
        (("sampler", "mine", NoDefaults), "must have defaults for all of its parameters"),
        (("sampler", "mine", Shifted()), "must be a subclass of desopt.samplers.Sampler or a fun"),
        (("sampler", "mine", int), "must be a subclass of desopt.samplers.Sampler or a fun"),
        (("objective", "mine", Unbound()), "Unbound has no prepare, dimension; it needs"),
        (("objective", "mine", Unbound), "Unbound has no prepare, dimension"),
        (("objective", "mine", 3), "has no compiled, settings"),
        (("objective", "their", Mine), "has the name 'mine'"),
    ],
)  # fmt: skip
def test_refused(arguments: tuple[Any, ...], message: str) -> None:
    before = [set(METHODS), set(SAMPLERS), set(OBJECTIVES)]
    with pytest.raises((TypeError, ValueError), match=message):
        desopt.register(*arguments)
    assert [set(METHODS), set(SAMPLERS), set(OBJECTIVES)] == before


@pytest.mark.parametrize(
    "look", [("red", "-", "o"), ("#123456", "dashed", "o"), ("#123456", "-", "h"), ("#123456", "-")]
)
def test_looks_that_the_page_cannot_draw(look: Any) -> None:
    with pytest.raises(ValueError, match=r"'mine': look must be .* of the markers o s .*, got \("):
        desopt.register("method", "mine", Populated, look=look)
    assert "mine" not in METHODS


def test_titles_are_for_methods() -> None:
    with pytest.raises(ValueError, match="title is for methods, not for a sampler"):
        desopt.register("sampler", "shifted", Shifted, title="Shifted")


def test_the_same_thing_again_replaces_it_and_another_is_refused() -> None:
    desopt.register("objective", "mine", other)
    desopt.register("objective", "mine", other)
    with pytest.raises(ValueError, match=r"'mine' is taken by test_plugins.other: choose another"):
        desopt.register("objective", "mine", Mine)


def test_unknown_names_suggest_registered_ones() -> None:
    desopt.register("objective", "squares", other)
    desopt.register("sampler", "shifted", Shifted)
    with pytest.raises(ValueError, match=r"unknown fun 'square'.*did you mean 'squares'"):
        run("square")
    with pytest.raises(ValueError, match=r"unknown sampler 'shift'.*did you mean 'shifted'"):
        run(sampler="shift")


def test_plug_ins_that_cannot_be_imported(plugin: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no plug-in 'my_plugins'.*without .py"):
        plugins.load(["my_plugins"])
    (plugin / "half.py").write_text("import not_installed")
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        plugins.load(["half"])


def test_plug_ins_reach_child_processes_by_the_environment(plugin: Path) -> None:
    plugins.load(["my_plugin"])
    assert os.environ[plugins.VARIABLE] == "my_plugin"
    code = "import desopt; from desopt import plugins; plugins.load(); print(*desopt.METHODS)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=900, cwd=plugin
    )
    assert done.returncode == 0, done.stderr
    assert "first-worker" in done.stdout.split()
