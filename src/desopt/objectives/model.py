"""A trained linear model as a file: JSON that any language reads, and no pickle.

The file holds columns, means, scales, weights and intercept, the loss, and where they come from.
Numbers are written so that they are read back bit for bit, and nothing in it depends on the time
or the machine: all sites of a federation write the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from desopt._version import __version__
from desopt.contract.codec import digest_of
from desopt.contract.types import FloatArray
from desopt.objectives.inputs import Inputs, as_numbers
from desopt.objectives.losses import LOSSES
from desopt.system.files import write_whole

FORMAT, VERSION = "desopt linear model", 1


@dataclass(frozen=True)
class Model:
    """A linear model: ``weights`` of the prepared columns, and an intercept (0 without one).

    ``provenance`` says what it was trained by.

    >>> model = desopt.Model("lr", (1.0, -1.0))
    >>> model.predict(np.array([[2.0, 1.0], [0.0, 1.0]]))
    array([ 1., -1.])
    """

    loss: str
    weights: tuple[float, ...]
    intercept: float = 0.0
    inputs: Inputs = field(default_factory=Inputs)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def decision_function(self, X: Any) -> FloatArray:
        """A score for every row; the model says +1 where it is > 0.

        X is a data frame or a mapping, whose columns are found by name, or an array of the
        model's columns in their order.
        """
        Z = self.inputs.apply(X, "X")
        if Z.shape[1] != len(self.weights) + self.inputs.intercept:
            raise ValueError(f"X has {Z.shape[1]} columns, the model {len(self.weights)}")
        scores: FloatArray = np.asarray(Z @ np.append(self.weights, self._intercept)).ravel()
        if (without := np.flatnonzero(np.isnan(scores))).size:
            raise ValueError(
                f"X: row {without[0]} has no score: a value is missing (NaN), for which the model "
                "has no mean, or some are infinite"
            )
        return scores

    def predict(self, X: Any) -> FloatArray:
        """-1 or +1 for every row."""
        return np.where(self.decision_function(X) > 0.0, 1.0, -1.0)

    def predict_proba(self, X: Any) -> FloatArray:
        """The probabilities of -1 and of +1 for every row, of a logistic model."""
        if not LOSSES[self.loss].log_odds:
            useful = ", ".join(name for name, loss in LOSSES.items() if loss.log_odds)
            raise ValueError(
                f"a model of loss {self.loss!r} has no probabilities; use decision_function, or "
                f"train with {useful}"
            )
        score = self.decision_function(X)
        return np.column_stack([expit(-score), expit(score)])

    @property
    def _intercept(self) -> list[float]:
        return [self.intercept] if self.inputs.intercept else []

    def to_json(self) -> str:
        """The file's text."""
        inputs = self.inputs.settings()
        return (
            json.dumps(
                {
                    "format": FORMAT,
                    "version": VERSION,
                    "loss": self.loss,
                    "columns": inputs["columns"],
                    "means": inputs["means"],
                    "scales": inputs["scales"],
                    "weights": list(self.weights),
                    "intercept": self.intercept if self.inputs.intercept else None,
                    "provenance": dict(self.provenance),
                },
                indent=1,
                allow_nan=False,
            )
            + "\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, at once: whoever reads it meanwhile has the old one."""
        write_whole(path, self.to_json().encode())


def model_of(x: FloatArray, loss: str, inputs: Inputs, provenance: Mapping[str, Any]) -> Model:
    """The model of a trained x."""
    weights = [float(value) for value in x]
    intercept = weights.pop() if inputs.intercept else 0.0
    return Model(loss, tuple(weights), intercept, inputs, provenance)


def provenance_of(config: Mapping[str, Any], rounds: int, x: FloatArray) -> dict[str, Any]:
    """What a model was trained by: the same on a server and at all sites.

    ``config`` is that of a journal's header or of a run's description. ``x`` is the digest of the
    trained point, as ``desopt replay --digest`` prints it, and ``digest`` one of all the rest.
    """
    found = {name: config[name] for name in _CONFIG} | {"desopt": __version__, "rounds": rounds}
    found["objective"] = {k: v for k, v in found["objective"].items() if k != "inputs"}
    found["x"] = digest_of(x)
    text = json.dumps(found, sort_keys=True).encode()
    return found | {"digest": hashlib.blake2b(text, digest_size=8).hexdigest()}


_CONFIG = ("method", "objective", "workers", "participation", "batch_size")


def load_model(path: str | os.PathLike[str]) -> Model:
    """A model that was saved by ``desopt run`` or by a federation.

    >>> desopt.Model("lr", (1.0, -1.0)).save("model.json")
    >>> desopt.load_model("model.json").weights
    (1.0, -1.0)
    """
    content = Path(path).read_bytes()
    try:
        return _read(json.loads(content.decode(), parse_constant=_refuse))
    except (KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
        raise ValueError(f"{path} is not a model of desopt: {error}") from None


def _read(values: Any) -> Model:
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ValueError(f"it must be an object with the format {FORMAT!r}")
    if values["version"] != VERSION:
        raise ValueError(f"its version is {values['version']!r:.20}, this desopt reads {VERSION}")
    if values["loss"] not in LOSSES:
        raise ValueError(f"unknown loss {values['loss']!r:.40}; there are {', '.join(LOSSES)}")
    intercept = values["intercept"]
    inputs = Inputs.restore(
        {name: values[name] for name in ("columns", "means", "scales")}
        | {"intercept": intercept is not None}
    )
    weights = values["weights"]
    numbers = as_numbers("weights and intercept", [*weights, intercept or 0.0])
    for name in ("columns", "means"):
        if values[name] is not None and len(values[name]) != len(weights):
            raise ValueError(f"{len(weights)} weights for {len(values[name])} {name}")
    provenance = dict(values["provenance"])
    return Model(values["loss"], tuple(numbers[:-1]), numbers[-1], inputs, provenance)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")
