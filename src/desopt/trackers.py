"""Callbacks for trackers of experiments: TensorBoard, MLflow, Weights & Biases, ``logging``.

::

    desopt.minimize(fun, x0, callbacks=[TensorBoard("runs/first")])

Each gets the columns of every row (``desopt.run.history.COLUMNS``) as metrics, with the round as
the step, and the settings of the run where the tracker has a place for them. A resumed run goes on
at its round.

Tracking is beside the point of a run: a tracker that fails is reported once, with a warning, and
left out from then on. The round it failed in is in the journal already.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from desopt.contract import checks
from desopt.contract.errors import check_name
from desopt.run.history import COLUMNS, Row
from desopt.system.terminal import warn


class Tracker:
    """A callback with a beginning and an end, whose failures do not end the run.

    A tracker of your own defines any of ``_begin(settings)``, ``_log(round, metrics)`` and
    ``_close()``, which finds in ``ended`` whether the run came to its end: not by an error or
    Ctrl-C.

    >>> class Rounds(desopt.trackers.Tracker):
    ...     def _log(self, round, metrics):
    ...         print(round, "loss" in metrics)
    >>> f = lambda x: float(x @ x)
    >>> result = desopt.minimize(f, np.ones(3), rounds=2, eval_every=2, callbacks=[Rounds()])
    1 False
    2 True
    """

    ended = False
    _begun = _failed = False  # of the class: a subclass may forget to call super().__init__

    def begin(self, settings: Mapping[str, Any]) -> None:
        """The run begins, or goes on; its settings on one level."""
        self._begun, self.ended = True, False
        self._try(lambda: self._begin(settings))

    def __call__(self, row: Row) -> None:
        """A round is done. The loss is left out where it was not evaluated."""
        metrics = {name: float(row[name]) for name in COLUMNS if name != "round"}
        if math.isnan(metrics["loss"]):
            del metrics["loss"]
        self._try(lambda: self._log(row["round"], metrics))

    def end(self) -> None:
        """The run has come to its end."""
        self.ended = True

    def close(self) -> None:
        """The run is over, in whatever way; perhaps before it began."""
        if self._begun:
            self._begun = False
            self._try(self._close)

    def _begin(self, settings: Mapping[str, Any]) -> None: ...

    def _log(self, round: int, metrics: Mapping[str, float]) -> None: ...

    def _close(self) -> None: ...

    def _try(self, step: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            step()
        except Exception as error:
            self._failed = True
            text = f"{type(error).__name__}: {error}"
            warn(
                f"{type(self).__name__} has failed and is left out from now on; the run goes on "
                f"({text[:500]})",
                RuntimeWarning,
                stacklevel=6,
            )


class TensorBoard(Tracker):
    """Scalars ``desopt/loss``, ``desopt/evaluations``, ... as event files in a folder.

    They are float32, as all scalars of TensorBoard. TensorFlow is not needed.

    >>> tracker = desopt.trackers.TensorBoard("events")
    >>> result = desopt.minimize(lambda x: float(x @ x), np.ones(3), rounds=2, callbacks=[tracker])
    """

    def __init__(self, folder: str, prefix: str = "desopt/") -> None:
        self._summary = _required("tensorboard.summary", "tensorboard")
        self._folder, self._prefix = str(folder), prefix

    def _begin(self, settings: Mapping[str, Any]) -> None:
        self._writer = self._summary.Writer(self._folder)

    def _log(self, round: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(f"{self._prefix}{name}", value, step=round)
        self._writer.flush()

    def _close(self) -> None:
        self._writer.close()


class MLflow(Tracker):
    """A run of MLflow: settings as parameters, columns as metrics.

    tracking_uri
        ``sqlite:///runs.db``, a server, ...; None: MLflow's own choice.
    experiment, run_name
        The experiment, created if it does not exist, and the name of the run.
    run_id
        A run to continue instead, for example after resuming from a journal.

    >>> tracker = desopt.trackers.MLflow("sqlite:///runs.db", run_name="first")
    >>> result = desopt.minimize(lambda x: float(x @ x), np.ones(3), rounds=2, callbacks=[tracker])
    >>> tracker.run_id is None
    False
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        experiment: str = "desopt",
        run_name: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self._entities = _required("mlflow.entities", "mlflow")
        self._tracking = _required("mlflow.tracking", "mlflow")
        self._uri, self._experiment, self._name = tracking_uri, experiment, run_name
        self.run_id = run_id

    def _begin(self, settings: Mapping[str, Any]) -> None:
        self._client = self._tracking.MlflowClient(self._uri)
        if self.run_id is not None:
            self._client.update_run(self.run_id, "RUNNING")
            return
        known = self._client.get_experiment_by_name(self._experiment)
        id = (
            self._client.create_experiment(self._experiment)
            if known is None
            else known.experiment_id
        )
        self.run_id = self._client.create_run(id, run_name=self._name).info.run_id
        params = [self._entities.Param(name, str(value)[:500]) for name, value in settings.items()]
        for at in range(0, len(params), 100):  # the most that a server takes at once
            self._client.log_batch(self.run_id, params=params[at : at + 100])

    def _log(self, round: int, metrics: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        found = [self._entities.Metric(name, value, now, round) for name, value in metrics.items()]
        self._client.log_batch(self.run_id, metrics=found)

    def _close(self) -> None:
        self._client.set_terminated(self.run_id, "FINISHED" if self.ended else "KILLED")


class WandB(Tracker):
    """A run of Weights & Biases; ``settings`` are those of ``wandb.init``.

    It is a run of its own beside any that are open in the process, unless ``reinit`` is given.
    Offline it writes to disk only:

    >>> callbacks = [desopt.trackers.WandB(project="mine", mode="offline")]
    """

    def __init__(self, **settings: Any) -> None:
        self._wandb = _required("wandb", "wandb")
        self._settings = settings

    def _begin(self, settings: Mapping[str, Any]) -> None:
        # By default wandb.init returns a run that is open already, which would be ended with ours.
        given = {"reinit": "create_new", **self._settings}
        config = {**settings, **given.pop("config", {})}
        self._run = self._wandb.init(config=config, **given)

    def _log(self, round: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=round)

    def _close(self) -> None:
        self._run.finish(exit_code=0 if self.ended else 1)


class Log(Tracker):
    """A line of Python's ``logging`` for every round in which f was evaluated, and the settings.

    ``logger``: its name, or a ``logging.Logger``. ``level``: a number, or a name such as
    ``"DEBUG"``. ``every``: a line for all rounds.

    >>> tracker = desopt.trackers.Log("mine", level=10)
    >>> result = desopt.minimize(lambda x: float(x @ x), np.ones(3), rounds=2, callbacks=[tracker])
    """

    def __init__(
        self,
        logger: str | logging.Logger = "desopt",
        level: int | str = logging.INFO,
        every: bool = False,
    ) -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level, self._every = _level(level), every

    def _begin(self, settings: Mapping[str, Any]) -> None:
        self._logger.log(
            self._level, "begin: %s", settings.get("method.name"), extra={"desopt": dict(settings)}
        )

    def _log(self, round: int, metrics: Mapping[str, float]) -> None:
        if "loss" not in metrics and not self._every:
            return
        loss = f"loss {metrics['loss']:.6g}, " if "loss" in metrics else ""
        failed = f", {metrics['nans']:.0f} failed" if metrics["nans"] else ""
        self._logger.log(
            self._level, "round %d: %s%.0f evaluations, %.0f bytes up, %.3g s%s", round, loss,
            metrics["evaluations"], metrics["bytes_up"], metrics["seconds"], failed,
            extra={"desopt": {"round": round, **metrics}},
        )  # fmt: skip


def _level(given: int | str) -> int:
    """A level of ``logging`` as a number."""
    names = logging.getLevelNamesMapping()
    if isinstance(given, str):
        check_name("level", given, names)
        return names[given]
    return checks.whole("level", given, 0)


def _required(module: str, extra: str) -> Any:
    """A module of an extra, imported now: a missing one is no matter for the midst of a run."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{extra} is missing ({error}); pip install 'desopt[{extra}]'") from error


__all__ = ["Log", "MLflow", "TensorBoard", "Tracker", "WandB"]
