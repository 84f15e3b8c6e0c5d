"""A run with everything around its rounds: journal, log of values, observers, engine."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from desopt.contract.types import FloatArray
from desopt.engines import Engine, Job
from desopt.engines.trials import NO_NUMBER
from desopt.kernels.jit import compilation_noticed
from desopt.run import header as headers
from desopt.run.choice import choose
from desopt.run.evaluations import Evaluations
from desopt.run.history import End, Interrupted, Status
from desopt.run.loop import loop
from desopt.run.observers import Observer, Record
from desopt.run.observers.callbacks import Callbacks
from desopt.run.observers.evaluation import Evaluation
from desopt.run.observers.journal import JournalWriter
from desopt.run.observers.notice import SlowRun
from desopt.run.observers.progress import ProgressBar
from desopt.run.stopping import RULES, Stopping
from desopt.run.values import SUFFIX, ValueLog
from desopt.system.terminal import warn

if TYPE_CHECKING:
    from desopt.run.result import Result


#: In the result of a run that was interrupted before it had an engine.
_NO_ENGINE: Any = SimpleNamespace(name="none", quick=False)


class Session:
    """One run: resumed if its journal exists, and ready to go on.

    ``state``: where it begins instead of x0, after the rounds of another run.
    """

    def __init__(
        self, job: Job, x0: FloatArray, settings: SimpleNamespace, plain: bool, state: Any = None
    ) -> None:
        self.job, self.settings, self.plain = job, settings, plain
        self._x0, self._stack = x0, ExitStack()
        state = job.algorithm.init(x0) if state is None else state
        self.record = Record(state, space=job.space)
        self.journals: list[JournalWriter] = []
        path: Path | None = settings.journal
        with self._stack:
            if path is not None:
                journal = JournalWriter(path, job, settings.snapshot_every)
                self.journals.append(self._stack.enter_context(journal))
                self.record = journal.resumed(x0) or self.record
            self.bar = ProgressBar(
                job.algorithm.name, settings.rounds, settings.progress,
                max_evaluations=settings.max_evaluations, max_seconds=settings.max_seconds,
            )  # fmt: skip
            self.slow = SlowRun(self.bar, self._planned(), path is not None, settings.max_seconds)
            self.log = self._stack.enter_context(self._values(path))
            self._warn_of_other_code(path)
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def run(self, engine: str | Engine) -> Result:
        """All rounds on this engine. Ctrl-C, at whatever moment, raises ``Interrupted``."""
        job, settings, record = self.job, self.settings, self.record
        chosen, why, evaluation = _NO_ENGINE, "before an engine was chosen", None
        try:
            with self.bar, compilation_noticed(self.bar.compiling):
                chosen, why = choose(engine, job, record.state, self.log, settings)
                self.slow.slots = getattr(chosen, "slots", 1)
                evaluation = self._evaluation(chosen)
                stopping, observers = self.observers(evaluation)
                end = loop(job, chosen, settings.rounds, record, observers, stopping.limit)
            result = self.result(end, chosen, why, evaluation.count)
            if result.nan_count:
                warn(_failures(result), RuntimeWarning, stacklevel=3)
        except (KeyboardInterrupt, SystemError) as error:
            if not _is_interrupt(error):
                raise
            count = 0 if evaluation is None else evaluation.count
            raise Interrupted(self.result(self._interrupted(), chosen, why, count)) from None
        return result

    def observers(self, evaluation: Evaluation) -> tuple[Stopping, list[Observer]]:
        """The rules that end the run, and all observers in their order."""
        settings = self.settings
        rules = {name: getattr(settings, name) for name in RULES}
        stopping = Stopping(self.job, settings.rounds, evaluation, **rules)
        callbacks = Callbacks(settings.callbacks, self.job)
        self._stack.callback(callbacks.close)
        return stopping, [
            evaluation, stopping, self.record, *self.journals, self.bar, callbacks,
        ]  # fmt: skip

    def result(self, end: End, engine: Engine, why: str, objective: int) -> Result:
        """What was reached; ``objective`` values of a plain function were for the history."""
        method, picked = self.job.algorithm.name, getattr(self.settings, "picked", "")
        values = Evaluations() if getattr(engine, "quick", True) else self.log.evaluations
        used = self.record.history[-1]["evaluations"] if self.record.history else 0
        result = self.record.result(
            end, engine.name, f"{picked}{why}", method=method, evaluations=values,
            nfev_ahead=max(0, values.searched - used),
            nfev_objective=objective if self.plain else 0,
        )  # fmt: skip
        violation = self.job.violation(self.record.state.x)
        if violation > 0.0:
            result.success = False
            result.message += f"; x violates the constraints by {violation:.3g}"
        return result

    def _evaluation(self, engine: Engine) -> Evaluation:
        settings = self.settings
        by_loss = settings.target is not None or settings.patience is not None
        # without data all workers have one function, and its values are paid from the budget
        workers: Sequence[int] = range(1 if self.plain else self.job.workers)
        paid = self.plain and settings.max_evaluations is not None
        return Evaluation(
            engine, workers, settings.rounds, settings.eval_every, by_loss, self.record, paid
        )

    def _values(self, path: Path | None) -> ValueLog:
        if path is not None:
            path = path.with_name(path.name + SUFFIX)
        return ValueLog(
            path, partial(headers.identity, self.job, self._x0), shown=self.job.shown,
            code=self.journals[0].code if self.journals else None,
            always=self.settings.log_values is True, watch=self._watch,
        )  # fmt: skip

    def _warn_of_other_code(self, path: Path | None) -> None:
        """Values of other code, where no journal has said so."""
        if path is not None and self.log.begun_with and not self.record.history:
            headers.warn_of_other_code(path, self.log.begun_with, self.journals[0].code, 5)

    def _watch(self, values: Evaluations) -> None:
        """One more value: on the progress bar, and in the notice before a slow run."""
        self.slow.value(values[-1].seconds)
        best = math.nan if values.best is None or not self.plain else values.best.value
        self.bar.value(len(values), best, values.failures)

    def _planned(self) -> int:
        """Function values of the whole run, at most."""
        cost = getattr(self.job.algorithm, "cost", None)
        left = self.settings.rounds - self.record.state.round
        asked = len(self.job.asked(0))
        planned = left * asked * cost.most if cost is not None else 0
        budget = self.settings.max_evaluations
        return planned if budget is None else min(planned, budget)

    def _interrupted(self) -> End:
        self.record.settle()
        for journal in self.journals:
            journal.complete(self.record)
        journal_path: os.PathLike[str] | None = self.settings.journal
        how = "give journal=FILE next time to be able to resume"
        if journal_path is not None:
            how = f"the same call with journal={str(journal_path)!r} goes on from there"
        done = self.record.state.round
        return End(Status.INTERRUPTED, f"interrupted after round {done}; {how}")


def _failures(result: Result) -> str:
    """How many values failed, and why one of them did."""
    reasons = [value.reason for value in result.evaluations.failed]
    why = next((reason for reason in reasons if not reason.startswith(NO_NUMBER)), None)
    count = result.nan_count
    if why is None:
        return f"fun returned NaN or infinity {'once' if count == 1 else f'{count} times'}"
    if count == 1:
        return f"1 value failed because of: {why:.300}"
    return (
        f"{count} values failed, one of them because of: {why:.300}; "
        "result.evaluations has all reasons"
    )


def _is_interrupt(error: Any) -> bool:
    """Whether it is Ctrl-C, which compiled kernels wrap in SystemErrors."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)
