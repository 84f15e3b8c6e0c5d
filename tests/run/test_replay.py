"""``replay`` of runs with a method of the user's own."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import desopt
from desopt.contract.payload import Cost, Layout
from desopt.contract.types import Answer, Task
from desopt.methods import DES
from desopt.methods.samplers import Gaussian
from desopt.run import journal as journals

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    round: int
    x: Floats


@dataclass(frozen=True)
class Slope:
    """x -= step times the mean slope along ones: the five verbs, nothing of ours."""

    step: float = 0.1
    name: str = "slope"
    state_type = Point
    layout = Layout(float64=1)
    cost = Cost(1, 1)

    def init(self, x0: Floats) -> Point:
        return Point(0, x0)

    def plan(self, state: Point) -> Task:
        return Task(state.round, state.x)

    def work(self, task: Task, local: Any, worker: int) -> Answer:
        return Answer(worker, np.float64(task.x.sum() + worker).tobytes(), 1, 1)

    def merge(self, state: Point, answers: Iterable[Answer]) -> Point:
        slopes = [np.frombuffer(answer.payload, np.float64)[0] for answer in answers]
        return Point(state.round + 1, state.x - self.step * np.mean(slopes))

    def settings(self) -> dict[str, Any]:
        return asdict(self)


class Nameless(Slope):
    """Its constructor takes no name."""

    def __init__(self, step: float) -> None:
        super().__init__(step=step)


def square(x: Floats) -> float:
    return float(x @ x)


def run(path: Path, method: Any, **more: Any) -> desopt.Result:
    return desopt.minimize(
        square, [1.0, 2.0, 3.0], method=method, rounds=4, workers=2, journal=path,
        progress=False, **more,
    )  # fmt: skip


def test_a_method_of_ones_own(tmp_path: Path) -> None:
    points = []
    result = run(tmp_path / "j", Slope(0.2), callbacks=[lambda row: points.append(row.x)])
    for method in (Slope(0.2), Slope, lambda **settings: Slope(**settings), Nameless):
        found = desopt.replay(tmp_path / "j", method=method)
        assert found.tobytes() == result.x.tobytes()
        found = desopt.replay(tmp_path / "j", 2, method=method)
        assert found.tobytes() == points[1].tobytes()


def test_another_method_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "j", Slope(0.2))
    with pytest.raises(desopt.JournalError, match=r"'slope' is not one of es, .*method=\.\.\."):
        desopt.replay(tmp_path / "j")
    with pytest.raises(desopt.JournalError, match=r"step is 0.2 in the journal and 0.1 here"):
        desopt.replay(tmp_path / "j", method=Slope())
    with pytest.raises(desopt.JournalError, match=r"unexpected keyword argument 'step'"):
        desopt.replay(tmp_path / "j", method=DES)
    with pytest.raises(TypeError, match="must be an algorithm object or a class of them, got 3"):
        desopt.replay(tmp_path / "j", method=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must make an algorithm, but it returned \{"):
        desopt.replay(tmp_path / "j", method=lambda **settings: settings)  # type: ignore[arg-type]


def test_other_code_of_a_method_is_reported(tmp_path: Path) -> None:
    run(tmp_path / "j", Slope(0.2))

    class Changed(Slope):
        def merge(self, state: Point, answers: Iterable[Answer]) -> Point:
            return Point(state.round + 1, state.x)

    with pytest.warns(RuntimeWarning, match="began with other code of method") as caught:
        desopt.replay(tmp_path / "j", method=Changed(0.2))
    assert [warning.filename for warning in caught] == [__file__]


def test_a_built_in_class_with_a_sampler(tmp_path: Path) -> None:
    def draw(rng: np.random.Generator, n: int) -> Floats:
        return rng.standard_normal(n)

    result = run(tmp_path / "j", "des", sampler=draw)
    for method in (None, DES):
        found = desopt.replay(tmp_path / "j", method=method, sampler=draw)
        assert found.tobytes() == result.x.tobytes()
    with pytest.raises(ValueError, match="leave sampler out"):
        desopt.replay(tmp_path / "j", method=DES(sampler=Gaussian()), sampler=draw)


@pytest.mark.parametrize("method", ["es", "des-mr", "des-c"])
def test_values_ahead_of_an_accepted_step(method: str, tmp_path: Path) -> None:
    """They were computed in vain, but they are in the log, and each id names its point."""
    opt = desopt.Optimizer(
        np.ones(3), method=method, rounds=2, iterations=12, step_size=0.3, journal=tmp_path / "j"
    )
    names: dict[str, Floats] = {}
    while trials := opt.ask(4, ahead=True):
        for trial in reversed(trials):
            opt.tell(trial, float(trial.x @ trial.x))
            names[trial.id] = trial.x
    opt.close()
    used = int(opt.result().nfev)
    assert len(names) > used, "some were of no use"
    for name, x in names.items():
        assert desopt.replay(tmp_path / "j", trial=name).tobytes() == x.tobytes()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"round": 1.5}, TypeError, "round must be a whole number, got 1.5"),
        ({"round": "1"}, TypeError, "round must be a whole number, got '1'"),
        ({"round": 3}, ValueError, "round must be 0 to 2, the rounds in .*; got 3"),
        ({"trial": 3}, TypeError, r"trial must be an id, a text such as '3.0.17.2'; got 3"),
        ({"trial": "0.0.0.0", "round": 1}, ValueError, "give round or trial, not both"),
    ],
)
def test_bad_rounds_and_trials(
    given: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    desopt.minimize(
        lambda x: float(x @ x), np.ones(2), rounds=2, journal=tmp_path / "j", progress=False
    )
    with pytest.raises(error, match=message):
        desopt.replay(tmp_path / "j", **given)


def test_the_command_reads_the_journal_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from desopt.cli.replay import replay

    run(tmp_path / "j", "des-mr")
    read, calls = journals.read, list[Path]()

    def counted(path: Path) -> journals.Contents:
        calls.append(path)
        return read(path)

    monkeypatch.setattr(journals, "read", counted)
    replay(tmp_path / "j", digest=True)
    replay(tmp_path / "j")
    assert calls == [tmp_path / "j"] * 2
