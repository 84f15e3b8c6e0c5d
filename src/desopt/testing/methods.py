"""The contract of a method: ``contract.types.Algorithm``."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desopt.contract.codec import pack_state, unpack_state
from desopt.contract.payload import Layout
from desopt.contract.space import Box
from desopt.contract.types import Algorithm, Answer, FloatArray, LocalSearch, Task
from desopt.engines import Job
from desopt.objectives import WorkerData
from desopt.testing.claims import (
    BATCH,
    SEED,
    Claims,
    N,
    bits,
    dialogue,
    least_squares,
    read_only,
    sent,
    small_job,
    state_bits,
)
from desopt.testing.declarations import check_declarations, check_settings

_HUGE = float(np.finfo(np.float64).max)


def check_method(algorithm: Algorithm) -> None:
    """Raise an AssertionError where a method breaks its contract.

    The method runs a few rounds of a small regression with 4 workers (1 if it has the attribute
    ``single_worker``), on finite and on failing values, and merges honest, missing and hostile
    answers. Choose few iterations: 10 are enough.

    >>> from desopt.methods import DES
    >>> desopt.testing.check_method(DES(iterations=5, step_size=0.3))
    """
    claim = Claims(f"method {getattr(algorithm, 'name', type(algorithm).__name__)!r}")
    check_declarations(claim, algorithm)
    check_settings(claim, algorithm)
    with claim.no_global_randomness(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # overflows of values that are not finite
        _check_start(claim, algorithm)
        for state, answers in _rounds(claim, algorithm):
            _check_merges(claim, algorithm, state, answers)
            _check_limits(claim, algorithm, state)
            _check_dialogue(claim, algorithm, state)
            _check_hostile(claim, algorithm, state, answers)
        for value in (np.nan, np.inf, -np.inf):
            _check_failing(claim, algorithm, value)
        single = getattr(algorithm, "float32", False)  # whose numbers need not be within bounds
        if "bounds" in getattr(algorithm, "observes", ()) and not single:
            _check_box(claim, algorithm)


def _check_start(claim: Claims, algorithm: Any) -> None:
    x0 = np.linspace(-1.0, 1.0, N)
    state = algorithm.init(read_only(x0))
    _check_state(claim, algorithm, state, 0)
    claim(bits(state.x) == bits(x0), "init starts at x0", f"x is {state.x}, x0 {x0}")
    before = state_bits(state)
    task, again = algorithm.plan(state), algorithm.plan(state)
    claim(state_bits(state) == before, "plan leaves the state alone", "plan changed it")
    claim(
        isinstance(task, Task) and (task.round, bits(task.x)) == (state.round, bits(state.x)),
        "plan gives a Task of the state's round and x",
        f"It gave {task!r:.200}",
    )
    claim(
        bits([task.scalars, task.memory]) == bits([again.scalars, again.memory]),
        "plan is a function of the state",
        "Two calls gave other scalars or another memory",
    )


def _check_state(claim: Claims, algorithm: Any, state: Any, round: int) -> None:
    claim(
        type(state) is algorithm.state_type,
        "init and merge give states of state_type",
        f"state_type is {algorithm.state_type.__name__}, the state a {type(state).__name__}",
    )
    claim(
        state.round == round, "a state has the number of its round", f"{state.round}, not {round}"
    )
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        claim(
            not isinstance(value, np.ndarray | float) or np.isfinite(value).all(),
            "states are finite, whatever values the objective has and whatever workers send",
            f"After {round} rounds, {field.name} is {value!r:.100}",
        )
    copy = unpack_state(pack_state(state), state)
    claim(
        state_bits(copy) == state_bits(state),
        "a state survives pack_state and unpack_state: fields are float64 vectors and plain values",
        f"{state!r:.200} came back as {copy!r:.200}",
    )


def _rounds(claim: Claims, algorithm: Any, count: int = 3) -> Iterator[tuple[Any, list[Answer]]]:
    """The states of a few rounds with their answers, checked on the way."""
    calls = 0

    def counted(x: FloatArray, batch: Any) -> float:
        nonlocal calls
        calls += 1
        return least_squares(x, batch)

    job = small_job(algorithm, counted)
    state = algorithm.init(np.zeros(N))
    size = np.size(algorithm.plan(state).memory)
    for round in range(count):
        before, task = state_bits(state), algorithm.plan(state)
        claim(
            np.size(task.memory) == size,
            "a task's memory has one size in all rounds: engines make room for it once",
            f"It has {np.size(task.memory)} numbers in round {round}, {size} before",
        )
        calls, answers = 0, []
        for worker in range(job.workers):
            answers.append(job.work(task, worker))
            _check_answer(claim, algorithm, job, answers[-1], worker, calls)
            calls = 0
        other = small_job(algorithm)  # another process, which asks in another order
        again = [other.work(task, worker) for worker in reversed(range(job.workers))][::-1]
        claim(
            list(map(sent, answers)) == list(map(sent, again)),
            "work is a function of task, data and worker",
            f"In round {round}, a second process gave other answers",
        )
        claim(state_bits(state) == before, "work leaves the task alone", "It changed task.x")
        yield state, answers
        state = algorithm.merge(state, iter(answers))
        _check_state(claim, algorithm, state, round + 1)
    claim(state.x.any(), "x moves on a regression", f"x is still 0 after {count} rounds")


def _check_box(claim: Claims, algorithm: Any) -> None:
    """All points and every x in a box, from payloads as from points."""
    box = Box(np.full(N, -0.05), np.full(N, 0.04))
    algorithm = dataclasses.replace(algorithm, box=box)
    check_settings(claim, algorithm)

    def inside(x: FloatArray) -> bool:
        return bool(((x >= box.lower) & (x <= box.upper)).all())

    def watched(x: FloatArray, batch: Any) -> float:
        claim(inside(x), "points are in the box", f"{x} was to be evaluated")
        return least_squares(x, batch)

    job, state = small_job(algorithm, watched), algorithm.init(np.zeros(N))
    for _ in range(3):
        task = algorithm.plan(state)
        answers = [job.work(task, worker) for worker in range(job.workers)]
        bare = algorithm.merge(state, [answer.bare() for answer in answers])
        state = algorithm.merge(state, answers)
        claim(inside(state.x), "x stays in the box", f"It is {state.x}")
        claim(
            state_bits(bare) == state_bits(state),
            "merge gives the same bits from payloads as from points in a box",
            "It gave other ones",
        )


def _check_answer(
    claim: Claims, algorithm: Any, job: Job, answer: Answer, worker: int, calls: int
) -> None:
    claim(answer.worker == worker, "an answer names its worker", f"{answer.worker}, not {worker}")
    layout, size = algorithm.layout, len(answer.payload)
    claim(
        size == layout.size,
        "a payload has layout.size bytes",
        f"It has {size}, the layout {layout.size}",
    )
    _decoded(claim, algorithm, answer)
    claim(
        answer.evaluations == calls,
        "evaluations counts the values that were computed",
        f"The answer has {answer.evaluations}, {calls} were computed",
    )
    claim(
        1 <= answer.evaluations <= algorithm.cost.most,
        "a round without a limit takes at most cost.most values",
        f"It took {answer.evaluations}, cost is {algorithm.cost}",
    )
    rows = job.shards[worker].size if algorithm.cost.whole else BATCH
    claim(
        answer.samples == answer.evaluations * (rows or 1),
        "a value is over all of a worker's rows if cost.whole, else over a minibatch",
        f"{answer.evaluations} values over {answer.samples} samples, {rows} expected per value",
    )


def _decoded(claim: Claims, algorithm: Any, answer: Answer) -> None:
    try:
        algorithm.layout.decode(answer)
    except ValueError as error:
        claim(False, "layout.decode accepts every answer of work", f"It refused one: {error}")


def _check_merges(claim: Claims, algorithm: Any, state: Any, answers: list[Answer]) -> None:
    """Pure, and equal from payloads and from points, whoever is missing."""
    before, given = state_bits(state), bits([dataclasses.astuple(a) for a in answers])
    for present in (answers, answers[1:], answers[:-1], answers[::2], answers[-1:]):
        if not present:
            continue
        merged = algorithm.merge(state, iter(present))
        claim(
            state_bits(state) == before
            and bits([dataclasses.astuple(a) for a in answers]) == given,
            "merge is pure",
            "It changed the state or an answer that it was given",
        )
        bare = algorithm.merge(state, (answer.bare() for answer in present))
        who = [answer.worker for answer in present]
        claim(
            state_bits(merged) == state_bits(bare),
            "merge gives the same bits from payloads as from points",
            f"With the workers {who} of round {state.round}, x is {merged.x} from points and "
            f"{bare.x} from payloads",
        )
        points = [answer.point for answer in present if answer.point is not None]
        claim(
            not any(np.shares_memory(merged.x, point) for point in points),
            "merge copies: an engine may use the memory of a point again",
            "x is the array of an answer's point",
        )
    nobody = algorithm.merge(state, iter([]))
    claim(
        bits(nobody.x) == bits(state.x) and nobody.round == state.round + 1,
        "without answers, x stays and the round counts",
        f"x went from {state.x} to {nobody.x}, round from {state.round} to {nobody.round}",
    )


def _check_limits(claim: Claims, algorithm: Any, state: Any) -> None:
    cost, job = algorithm.cost, small_job(algorithm)
    for limit in sorted({cost.least, (cost.least + cost.most) // 2, cost.most}):
        # the limit of a round is that of all workers: the worker's share of this one is limit
        task = dataclasses.replace(algorithm.plan(state), limit=limit * job.workers)
        answer = job.work(task, 0)
        claim(
            1 <= answer.evaluations <= limit,
            "work computes at most Task.limit values",
            f"limit {limit} (cost.least is {cost.least}): it computed {answer.evaluations}",
        )
        claim(
            len(answer.payload) == algorithm.layout.size,
            "a limit does not change the size of a payload",
            f"limit {limit}: {len(answer.payload)} bytes, not {algorithm.layout.size}",
        )
        _decoded(claim, algorithm, answer)
        one, other = (algorithm.merge(state, [each]) for each in (answer, answer.bare()))
        claim(
            state_bits(one) == state_bits(other),
            "merge need not know of a limit",
            f"limit {limit}: x is {one.x} from the point and {other.x} from the payload",
        )


@dataclass(frozen=True)
class _Dialogue:
    """A worker's side that answers a search p points at a time."""

    claim: Claims
    local: WorkerData
    p: int

    def run(self, search: LocalSearch) -> Answer:
        f = self.local.function(search.x, search.round, search.batches)
        dialogue(self.claim, search, f.value, self.p)
        return search.answer(f.rows)

    def total(self, x: FloatArray) -> tuple[float, int]:
        return self.local.total(x)


def _check_dialogue(claim: Claims, algorithm: Any, state: Any) -> None:
    """The answer is the same whatever number of points a search is asked for at a time."""
    job, task = small_job(algorithm), algorithm.plan(state)
    for worker in range(min(2, job.workers)):
        expected = job.work(task, worker)
        shard = job.shards[worker].open(job.objective, worker)
        local = WorkerData(job.objective, shard, SEED, worker, BATCH)
        for p in (1, 2, 7):
            answer = algorithm.work(task, _Dialogue(claim, local, p), worker)
            claim(
                sent(answer) == sent(expected),
                "the answer is the same for any number of points asked for at a time",
                f"With ask({p}) it is {sent(answer)!r:.200}, not {sent(expected)!r:.200}",
            )


def _check_failing(claim: Claims, algorithm: Any, value: float) -> None:
    """Values that are not finite leave x finite and count in ``nans``."""
    calls = 0

    def sometimes(x: FloatArray, batch: Any) -> float:
        nonlocal calls
        calls += 1
        return value if calls % 3 else least_squares(x, batch)

    for fun in (lambda x, batch: value, sometimes):
        job, state = small_job(algorithm, fun), algorithm.init(np.ones(N))
        for round in range(2):
            task = algorithm.plan(state)
            answers = [job.work(task, worker) for worker in range(job.workers)]
            if fun is not sometimes:
                claim(
                    all(answer.nans == answer.evaluations for answer in answers),
                    "nans counts the values that are not finite",
                    f"All values were {value}, nans {[answer.nans for answer in answers]}",
                )
            for answer in answers:
                _decoded(claim, algorithm, answer)
            state = algorithm.merge(state, answers)
            _check_state(claim, algorithm, state, round + 1)


def _check_hostile(claim: Claims, algorithm: Any, state: Any, answers: Sequence[Answer]) -> None:
    """Payloads of the right length from dishonest workers: refused, or merged to a finite x."""
    for payload in _hostile_payloads(algorithm.layout):
        liar = Answer(answers[-1].worker, payload, 1, 1)
        for present in ([*answers[:-1], liar], [liar]):
            try:
                merged = algorithm.merge(state, iter(present))
            except ValueError:
                continue  # refused
            _check_state(claim, algorithm, merged, state.round + 1)


def _hostile_payloads(layout: Layout) -> Iterator[bytes]:
    numbers: list[Callable[[int], Any]] = [
        lambda count: np.full(count, _HUGE),
        lambda count: _HUGE * (-1.0) ** np.arange(count),
        lambda count: np.full(count, np.nan),
        lambda count: np.full(count, np.inf),
        lambda count: np.full(count, 5e-324),
    ]
    for make in numbers:
        with np.errstate(over="ignore"):
            yield layout.encode(
                np.ones(layout.bits, np.bool_), make(layout.float32), make(layout.float64)
            )
    draw = np.random.default_rng(SEED)
    yield from (bytes(layout.size), b"\xff" * layout.size, draw.bytes(layout.size))
