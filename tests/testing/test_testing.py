"""Every check of ``desopt.testing`` catches what it is for, and says so in a sentence.

Each class below breaks one rule of a part that is right otherwise.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from desopt import testing
from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, LocalSearch, Task
from desopt.engines.serial import Serial
from desopt.methods import DES, ES, ESCSA, FedZOGD
from desopt.methods.base import PointState
from desopt.methods.des import DESState
from desopt.methods.samplers import CustomSampler, Gaussian, Key, MixtureRademacher
from desopt.methods.searches import OnePlusOne
from desopt.objectives import LinearModel, PythonObjective
from desopt.objectives.functions import PythonFunction

Vector = NDArray[np.float64]

X = np.random.default_rng(0).standard_normal((30, 4))
Y = np.where(X @ np.ones(4) > 0, 1.0, -1.0)
POINT = np.linspace(-1.0, 0.5, 4)


def squares(x: Vector, batch: Any) -> float:
    return float(np.mean((batch[0] @ x - batch[1]) ** 2))


def assert_breaks(check: Any, thing: Any, message: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check(thing)
    text = str(caught.value)
    assert re.search(message, text, re.DOTALL), text
    assert re.match(r"(method|sampler|objective|engine) .*: .*\. .*\.$", text, re.DOTALL), text


# --- methods ---------------------------------------------------------------------------------


class Nothing(DES):
    """Nothing is wrong with it: the others fail because of what they break."""


def test_a_right_method_passes() -> None:
    testing.check_method(Nothing(iterations=10))


class ForgetsASetting(DES):
    def settings(self) -> dict[str, Any]:
        return {k: v for k, v in super().settings().items() if k != "momentum"}


class SettingsAreNotPlain(DES):
    def settings(self) -> dict[str, Any]:
        return super().settings() | {"momentum": (self.momentum,)}


class UnknownSetting(DES):
    def settings(self) -> dict[str, Any]:
        return super().settings() | {"colour": "blue"}


class SettingsLie(DES):
    def settings(self) -> dict[str, Any]:
        return super().settings() | {"momentum": 0.25}


class AnotherState(DES):
    state_type: ClassVar[type[Any]] = PointState

    def init(self, x0: Any) -> DESState:
        return DESState(0, x0, np.zeros_like(x0))


class NoState(DES):
    state_type: ClassVar[Any] = None


class NoCost(DES):
    cost: ClassVar[Any] = None


class CheapOnPaper(DES):
    @property
    def cost(self) -> Cost:
        return Cost(2, self.iterations)


class WholeOnPaper(DES):
    @property
    def cost(self) -> Cost:
        return Cost(2, self.iterations + 1, whole=True)


class StartsElsewhere(DES):
    def init(self, x0: Vector) -> DESState:
        return DESState(0, x0 + 1.0, np.zeros_like(x0))


class PlansAnotherRound(DES):
    def plan(self, state: DESState) -> Task:
        return Task(state.round + 1, state.x)


class PlansByChance(DES):
    calls: ClassVar[list[int]] = []

    def plan(self, state: DESState) -> Task:
        self.calls.append(state.round)
        return Task(state.round, state.x, memory=np.full(2, float(len(self.calls))))


class MemoryGrows(DES):
    def plan(self, state: DESState) -> Task:
        return Task(state.round, state.x, memory=np.zeros(state.round + 1))


class IgnoresTheLimit(DES):
    def search(self, task: Task, worker: int) -> LocalSearch:
        return super().search(replace(task, limit=None), worker)


class ForgetsTheValueAtX(DES):
    def search(self, task: Task, worker: int) -> LocalSearch:
        return super().search(replace(task, limit=task.limit and task.limit + 1), worker)


class LongPayload(DES):
    def work(self, task: Task, local: Any, worker: int) -> Answer:
        answer = super().work(task, local, worker)
        return replace(answer, payload=answer.payload + b"\0")


class StrayBits(DES):
    def work(self, task: Task, local: Any, worker: int) -> Answer:
        answer = super().work(task, local, worker)
        return replace(answer, payload=answer.payload[:-1] + b"\xff")


class Remembers(DES):
    calls: ClassVar[list[int]] = []

    def work(self, task: Task, local: Any, worker: int) -> Answer:
        self.calls.append(worker)
        other = replace(task, round=task.round + len(self.calls) % 5)
        return super().work(other, local, worker)


class GlobalRandomness(DES):
    def merge(self, state: DESState, answers: Iterable[Answer]) -> DESState:
        np.random.rand()  # noqa: NPY002
        return super().merge(state, answers)


class CountsTooFew(DES):
    def work(self, task: Task, local: Any, worker: int) -> Answer:
        answer = super().work(task, local, worker)
        return replace(answer, evaluations=answer.evaluations - 1)


class WritesToTheState(DES):
    def merge(self, state: DESState, answers: Iterable[Answer]) -> DESState:
        merged = super().merge(state, answers)
        state.m[:] = merged.m
        return merged


class PointsCountTwice(DES):
    def merge(self, state: DESState, answers: Iterable[Answer]) -> DESState:
        given = list(answers)
        merged = super().merge(state, given)
        in_memory = any(answer.point is not None for answer in given)
        return replace(merged, x=merged.x + in_memory)


class NobodyMoves(DES):
    def merge(self, state: DESState, answers: Iterable[Answer]) -> DESState:
        given = list(answers)
        merged = super().merge(state, given)
        return merged if given else replace(merged, x=state.x + 1.0)


class NeverMoves(DES):
    def merge(self, state: DESState, answers: Iterable[Answer]) -> DESState:
        list(answers)
        return replace(state, round=state.round + 1)


class LosesTheRound(DES):
    def merge(self, state: DESState, answers: Iterable[Answer]) -> DESState:
        return replace(super().merge(state, answers), round=state.round)


class SinglePrecision(DES):
    def init(self, x0: Vector) -> DESState:
        return DESState(0, x0, np.zeros_like(x0, np.float32))


class KeepsThePoint(ES):
    """x of the new state is the memory of an answer."""

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        given = list(answers)
        merged = super().merge(state, given)
        kept = [answer.point for answer in given if answer.point is not None]
        return replace(merged, x=kept[0]) if kept else merged


class AsksTwice(DES):
    """The second ask before tell goes on to other points."""

    def search(self, task: Task, worker: int) -> Any:
        class Restless(OnePlusOne):
            def ask(self, p: int = 1) -> Any:
                return [point + len(self._asked) for point in super().ask(p)]

        search = super().search(task, worker)
        search.__class__ = Restless
        return search


class DependsOnP(DES):
    """More points at a time, other points."""

    def search(self, task: Task, worker: int) -> Any:
        class Greedy(OnePlusOne):
            def _decide(self, asked: Any, values: Any, violations: Any) -> int:
                told = [value + len(asked) - 1 for value in values]
                return super()._decide(asked, told, violations)

        search = super().search(task, worker)
        search.__class__ = Greedy
        return search


class BelievesAnything(FedZOGD):
    """No check of what workers send."""

    def merge(self, state: PointState, answers: Iterable[Answer]) -> PointState:
        total = np.zeros_like(state.x)
        for answer in answers:
            total[0] += np.frombuffer(answer.payload, "<f8")[0]
        return PointState(state.round + 1, state.x - 1e-3 * total)


class SumsAreNotFinite(ESCSA):
    """+inf from a worker is legal here, but x must stay finite."""

    def merge(self, state: Any, answers: Iterable[Answer]) -> Any:
        given = list(answers)
        merged = super().merge(state, given)
        first = self.layout.decode(given[0]).float64[0] if given else 0.0
        return replace(merged, x=merged.x + 0.0 * first)


class NotFrozen:
    """All members, but anyone can change it."""

    def __init__(self) -> None:
        self._inner = DES(iterations=10)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (ForgetsASetting(), "settings.. has every field.*It lacks momentum"),
        (SettingsAreNotPlain(), "must be plain JSON"),
        (UnknownSetting(), "rebuilt from its settings equals the original.*colour"),
        (SettingsLie(), "rebuilt from its settings equals the original.*0.25"),
        (AnotherState(), "states of state_type.*PointState, the state a DESState"),
        (NoState(), "state_type is the class of the states"),
        (NoCost(), "cost is a Cost"),
        (CheapOnPaper(iterations=10), "at most cost.most values. It took 11"),
        (WholeOnPaper(iterations=10), "all of a worker's rows if cost.whole"),
        (StartsElsewhere(), "init starts at x0"),
        (PlansAnotherRound(), "plan gives a Task of the state's round"),
        (PlansByChance(), "plan is a function of the state. Two calls"),
        (MemoryGrows(iterations=10), "has one size in all rounds.* 2 numbers in round 1, 1 before"),
        (IgnoresTheLimit(iterations=10), "at most Task.limit values. limit 2 .*computed 11"),
        (ForgetsTheValueAtX(iterations=10), "at most Task.limit values. limit 2 .*computed 3"),
        (LongPayload(iterations=10), "layout.size bytes. It has 3, the layout 2"),
        (StrayBits(iterations=10), "decode accepts every answer.*beyond bit 9"),
        (Remembers(iterations=10), "work is a function of task, data and worker"),
        (GlobalRandomness(iterations=10), "A global random generator was used"),
        (CountsTooFew(iterations=10), "The answer has 10, 11 were computed"),
        (WritesToTheState(iterations=10), "merge is pure. It changed"),
        (PointsCountTwice(iterations=10, sampler=Gaussian()), "from payloads as from points"),
        (NobodyMoves(iterations=10), "without answers, x stays"),
        (NeverMoves(iterations=10), "x moves on a regression"),
        (LosesTheRound(iterations=10), "the round counts.*round from 0 to 0"),
        (SinglePrecision(iterations=10), "survives pack_state and unpack_state"),
        (KeepsThePoint(iterations=10), "use the memory of a point again"),
        (AsksTwice(iterations=10), "read-only|the same points again"),
        (DependsOnP(iterations=10), "for any number of points asked for at a time. With ask"),
        (BelievesAnything(iterations=10), "whatever workers send. After 1 rounds, x is"),
        (SumsAreNotFinite(population=8), "whatever workers send. After 1 rounds, x is"),
        (NotFrozen(), "a method is a frozen dataclass"),
        (object(), "It has no name, state_type, layout"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_broken_methods(method: Any, message: str) -> None:
    Remembers.calls.clear()
    assert_breaks(testing.check_method, method, message)


# --- samplers --------------------------------------------------------------------------------


class Biased(Gaussian):
    def vector(self, key: Key, k: int, n: int) -> Any:
        return None, super().vector(key, k, n)[1] + 0.2

    proposals = CustomSampler.proposals


class TooLong(Gaussian):
    def vector(self, key: Key, k: int, n: int) -> Any:
        return None, 1.1 * super().vector(key, k, n)[1]

    proposals = CustomSampler.proposals


class SameForAllWorkers(Gaussian):
    def vector(self, key: Key, k: int, n: int) -> Any:
        return super().vector(key._replace(worker=0), k, n)

    proposals = CustomSampler.proposals


class OneNumber(Gaussian):
    def vector(self, key: Key, k: int, n: int) -> Any:
        return 0.5


class OutsideN(MixtureRademacher):
    def vector(self, key: Key, k: int, n: int) -> Any:
        index, values = super().vector(key, k, n)
        assert index is not None
        return index + 1, values


class OtherProposals(MixtureRademacher):
    def proposals(self, alpha: Vector, key: Key, n: int) -> Any:
        return super().proposals(alpha, key._replace(round=key.round + 1), n)


class ForgetsL(MixtureRademacher):
    def settings(self) -> dict[str, Any]:
        return {"name": "MixtureRademacher"}


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Biased(), "mean 0. For n = 1, coordinate 0 has mean 0.[12]"),
        (TooLong(), r"covariance I. For n = 1, E\[u_0 u_0\] is 1.2"),
        (SameForAllWorkers(), "32 vectors are the same for another worker"),
        (OneNumber(), "vector gives .coordinates or None, values. within n. cannot unpack"),
        (OutsideN(), "within n. sampler returned a coordinate outside 0..0"),
        (OtherProposals(), "alpha_k times vector"),
        (ForgetsL(l=3), "describe the sampler completely"),
        (CustomSampler(lambda rng, n: np.random.standard_normal(n)), "gave other bits"),  # noqa: NPY002
        (CustomSampler(lambda rng, n: np.full(n, np.nan)), "values are finite"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_broken_samplers(sampler: Any, message: str) -> None:
    assert_breaks(testing.check_sampler, sampler, message)


# --- objectives ------------------------------------------------------------------------------


class Bound(PythonObjective):
    """``make`` is the class of the local functions."""

    make: ClassVar[type[PythonFunction]] = PythonFunction

    def bind(self, batch: Any, x: Vector) -> Any:
        return self.make(self.fun, batch, ())


class Noisy(Bound):
    class Function(PythonFunction):
        def value(self, x: Vector, iteration: int = 0) -> float:
            return super().value(x, iteration) + 1e-9 * np.random.default_rng().random()

    make = Function


class ASum(Bound):
    class Function(PythonFunction):
        def value(self, x: Vector, iteration: int = 0) -> float:
            return self.rows * super().value(x, iteration)

    make = Function


class OneBatchForAll(Bound):
    class Function(PythonFunction):
        def value(self, x: Vector, iteration: int = 0) -> float:
            return super().value(x, 0)

    make = Function


class RunsItsOwnWay(Bound):
    class Function(PythonFunction):
        def run(self, search: Any) -> None:
            while points := search.ask():
                search.tell([1.0001 * self.value(points[0])])

    make = Function


class WrongRows(Bound):
    class Function(PythonFunction):
        rows: Any = property(lambda self: 99, lambda self, rows: None)

    make = Function


class LosesAShard(PythonObjective):
    def prepare(self, shards: Any, *, some: bool = False) -> Any:
        return []


class WrongDimension(PythonObjective):
    def dimension(self, shards: Any) -> int:
        return 17


class NoName(PythonObjective):
    def settings(self) -> dict[str, Any]:
        return {}


class StaysHere(PythonObjective):
    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a lock")


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (Noisy(squares), "value is a function of x and the batch"),
        (ASum(squares), "the mean of F over the rows"),
        (OneBatchForAll(squares), "Over a minibatch of 7 rows"),
        (RunsItsOwnWay(squares), "ask and tell with single values give"),
        (WrongRows(squares), "It is 99"),
        (LosesAShard(squares), "1 went in, 0 came out"),
        (WrongDimension(squares), "It is 17 for a point of 4 numbers"),
        (NoName(squares), "must be the name"),
        (StaysHere(squares), "must pickle by cloudpickle.*a lock"),
        (PythonObjective(lambda x, batch: float("nan")), "a finite float"),
        (object(), "It has no compiled, settings"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_broken_objectives(objective: Any, message: str) -> None:
    assert_breaks(lambda each: testing.check_objective(each, (X, Y), POINT), objective, message)


def test_a_linear_model_that_loses_a_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled search is compared with single values too."""
    from desopt.kernels import two_point

    descend = two_point.descend

    def wrong(*arguments: Any) -> Any:
        nans = descend(*arguments)
        arguments[8][0] *= 1.0 + 1e-6
        return nans

    testing.check_objective(LinearModel("lr"), (X, Y), POINT)
    monkeypatch.setattr(two_point, "descend", wrong)
    assert_breaks(
        lambda each: testing.check_objective(each, (X, Y), POINT),
        LinearModel("lr"),
        "within rounding where the objective is compiled. TwoPoint, moving, 1 rows",
    )


# --- engines ---------------------------------------------------------------------------------


class Backwards(Serial):
    def round(self, task: Task) -> Iterator[Answer]:
        return iter(list(super().round(task))[::-1])


class AsksEverybody(Serial):
    def round(self, task: Task) -> Iterator[Answer]:
        return (self._job.work(task, worker) for worker in range(self._job.workers))


class NoLimit(Serial):
    def round(self, task: Task) -> Iterator[Answer]:
        return super().round(replace(task, limit=None))


class EvaluatesTheOldState(Serial):
    def begin(self, state: Any, limit: int | None = None) -> None:
        super().begin(getattr(self, "_next", state))
        self._next = state


class EvaluatesInAnyOrder(Serial):
    def evaluate(self, workers: Any) -> Any:
        return super().evaluate(sorted(workers))


class NoTraffic(Serial):
    def traffic(self) -> tuple[int, int]:
        return 0, 0


class TrafficSinceTheStart(Serial):
    def traffic(self) -> tuple[int, int]:
        return self._traffic._up, self._traffic._down


class AnotherPoint(Serial):
    def round(self, task: Task) -> Iterator[Answer]:
        return (replace(answer, point=task.x + 1.0) for answer in super().round(task))


class SwallowsErrors(Serial):
    def round(self, task: Task) -> Iterator[Answer]:
        try:
            yield from list(super().round(task))
        except Exception:
            return


class HidesTheWorker(Serial):
    def round(self, task: Task) -> Iterator[Answer]:
        try:
            yield from super().round(task)
        except Exception as error:
            raise RuntimeError("something went wrong") from error


class ClosesOnce(Serial):
    def close(self) -> None:
        del self._job


class LeavesAThread(Serial):
    stop: ClassVar[threading.Event] = threading.Event()

    def start(self, job: Any) -> None:
        super().start(job)
        threading.Thread(target=self.stop.wait, daemon=True).start()


class LeavesAFile(Serial):
    files: ClassVar[list[Any]] = []

    def start(self, job: Any) -> None:
        super().start(job)
        self.files.append(open(os.devnull))  # noqa: SIM115


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Backwards, r"asked \[0, 1, 2, 3\] and gave \[3, 2, 1, 0\]"),
        (AsksEverybody, r"Round . asked \[\d, \d\] and gave \[0, 1, 2, 3\]|traffic"),
        (NoLimit, "keep to task.limit. Round 2, limit 4"),
        (EvaluatesTheOldState, "at the x of the state last begun|traffic"),
        (EvaluatesInAnyOrder, r"Workers \[2, 0\]"),
        (NoTraffic, "had 0 up, 0 down"),
        (TrafficSinceTheStart, "Two calls with no round between"),
        (AnotherPoint, "points handed over in memory are those of the payloads"),
        (SwallowsErrors, "reaches the caller, with worker and round. No error came"),
        (HidesTheWorker, "A RuntimeError came instead: something went wrong"),
        (ClosesOnce, "close may be called twice. That raised AttributeError"),
        (LeavesAThread, r"close releases everything. Two more runs left 2 threads"),
        (LeavesAFile, r"close releases everything. Two more runs left 2 open files"),
        (object, "It has no name, repeated, start"),
    ],
)
def test_broken_engines(engine: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("desopt.testing.engines._PATIENCE", 0.1)
    if engine is LeavesAFile and not os.path.isdir("/proc/self/fd"):
        pytest.skip("open files are counted on Linux only")
    LeavesAThread.stop.clear()
    try:
        assert_breaks(testing.check_engine, engine, message)
    finally:
        LeavesAThread.stop.set()
        for file in LeavesAFile.files:
            file.close()


# --- for everyone ----------------------------------------------------------------------------


def test_checks_need_no_test_framework() -> None:
    code = (
        "import sys\n"
        "from desopt import testing\n"
        "from desopt.methods import DES\n"
        "testing.check_method(DES(iterations=4))\n"
        "print([name for name in ('pytest', 'hypothesis', 'psutil') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_what_an_outsiders_layout_may_hold() -> None:
    """Hostile payloads are made for any layout: bits, float32 and float64 together."""
    from desopt.testing.methods import _hostile_payloads

    layout = Layout(bits=3, float32=2, float64=1)
    payloads = list(_hostile_payloads(layout))
    assert len(payloads) >= 8
    assert {len(payload) for payload in payloads} == {layout.size}
