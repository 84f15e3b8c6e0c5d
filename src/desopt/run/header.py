"""The header of a journal: versions, configuration and code, the identity of a run.

Another version that decides bits or another configuration is refused. Other code of the user's is
reported: only its author knows whether it computes the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from desopt.contract.codec import digest_of
from desopt.contract.errors import JournalError
from desopt.contract.streams import STREAM_VERSION
from desopt.contract.types import FloatArray
from desopt.data import fingerprint
from desopt.engines import Job
from desopt.protocol.replica import VERSION
from desopt.run import journal as journals
from desopt.run.code_digest import code_digest
from desopt.run.journal_file import refusing
from desopt.system.terminal import warn

#: Versions that decide bits.
_STRICT = ("desopt", "format", "stream")


def versions() -> dict[str, Any]:
    """The versions in a journal's header; the first three decide bits."""
    return {
        "desopt": VERSION,
        "format": journals.FORMAT_VERSION,
        "stream": STREAM_VERSION,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def header_of(job: Job, x0: FloatArray, initial: float, code: Mapping[str, str]) -> dict[str, Any]:
    """The header of a run's journal; ``initial`` is f(x0), NaN where it was not evaluated."""
    return {
        "versions": versions(),
        "code": code,
        "config": {
            "method": _stored("method", job.algorithm.settings()),
            "objective": _stored("objective", job.objective.settings()),
            "workers": job.workers,
            "participation": job.participation,
            "seed": job.seed,
            "batch_size": job.batch_size,
            "n": job.n,
            "data": fingerprint(job.shards),
            "x0": digest_of(x0),
        },
        "initial_fun": None if math.isnan(initial) else initial,  # JSON has no NaN
    }


def _stored(part: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a journal gives them back: a tuple is a list there."""
    stored = {}
    for name, value in settings.items():
        try:
            stored[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"the {part}'s setting {name} cannot be in a journal: {error}; settings() must "
                "describe it by plain JSON values"
            ) from None
    return stored


def identity(job: Job, x0: FloatArray) -> str:
    """A digest of everything that a run's values depend on, but for the user's code."""
    mine = header_of(job, x0, math.nan, {})
    strict = {name: mine["versions"][name] for name in _STRICT}
    config = mine["config"]
    if config["seed"] == config["method"].get("seed"):  # as in files older than this setting
        del config["seed"]
    text = json.dumps([strict, config], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def initial_value(header: Mapping[str, Any]) -> float:
    """f(x0), NaN where it was not evaluated."""
    value = header["initial_fun"]
    return math.nan if value is None else float(value)


def check_versions(path: Path, header: Mapping[str, Any]) -> None:
    """Refuse a journal whose bits this version could not repeat."""
    with refusing(path, "its versions"):
        mine = versions()
        theirs = {name: header["versions"].get(name) for name in _STRICT}
        _refuse_differences(path, "version", theirs, {name: mine[name] for name in _STRICT})


def check_config(path: Path, header: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Refuse to continue another run's journal."""
    with refusing(path, "its configuration"):
        theirs = {"seed": mine["seed"], **header["config"]}  # older journals do not say
        _refuse_differences(path, "configuration", flatten(theirs), flatten(mine))


def check_method(path: Path, header: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Refuse a method with other settings than the run's."""
    with refusing(path, "its method"):
        ours = flatten(_stored("method", mine))
        _refuse_differences(path, "method", flatten(header["config"]["method"]), ours)


def warn_of_other_code(
    path: Path, header: Mapping[str, Any], mine: Mapping[str, str], stacklevel: int
) -> None:
    """Say which of the user's functions have changed since the journal was begun."""
    names = _other_code(header, mine)
    if names:
        warn(
            f"{path}: this run began with other code of {', '.join(names)}; it goes on with what "
            "is given now",
            RuntimeWarning,
            stacklevel=stacklevel,
        )


def warn_of_other_part(path: Path, header: Mapping[str, Any], name: str, part: Any) -> None:
    """The same for one part that a replay is given."""
    theirs = header.get("code")
    if isinstance(theirs, dict) and name in theirs:
        mine = {**theirs, name: code_digest(part) or theirs[name]}
        warn_of_other_code(path, header, mine, 6)


def _other_code(header: Mapping[str, Any], mine: Mapping[str, str]) -> list[str]:
    """Names of changed functions; digests of another minor version of Python say nothing."""
    theirs = header.get("code")
    before, now = str(header["versions"].get("python")), platform.python_version()
    if not isinstance(theirs, dict) or before.split(".")[:2] != now.split(".")[:2]:
        return []
    names = sorted(theirs.keys() | mine.keys())
    return [f"{name:.40}" for name in names if theirs.get(name) != mine.get(name)]


def _refuse_differences(
    path: Path, what: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> None:
    different = [
        f"{name} is {theirs.get(name)!r:.200} in the journal and {ours.get(name)!r:.200} here"
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name) != ours.get(name)
    ]
    if different:
        raise JournalError(
            f"{path} belongs to a run of another {what}: {'; '.join(different)}. "
            "Use the same to continue it, or give another file to start again"
        )


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level: {"method": {"seed": 1}} -> {"method.seed": 1}."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            flat.update(flatten(item, f"{prefix}{key}."))
        else:
            flat[prefix + key] = item
    return flat
