"""A tuned module as the digest of its base and the journal of its run: exact, in kilobytes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from desopt.contract import checks
from desopt.contract.errors import JournalError
from desopt.run import journal as journals
from desopt.run.arguments import as_path
from desopt.run.journal_file import refusing
from desopt.run.replay import replayed
from desopt.torch.parameters import Coordinates, Parameters, Subspace, base_digest, digest_of

_SPACES: Mapping[str, Any] = {"Coordinates": Coordinates, "Subspace": Subspace}


def save(
    path: str | os.PathLike[str], journal: str | os.PathLike[str], round: int | None = None
) -> None:
    """Keep the module after ``round`` rounds (None: all) of a journal: ``load`` rebuilds it.

    The file is a journal of these rounds without the snapshots of later states, and can be replayed
    and continued like any other. It has no weights: the base is needed again.

    >>> import torch
    >>> import desopt.torch
    >>> X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    >>> y = (X[:, 0] > 0).long()
    >>> loss = torch.nn.CrossEntropyLoss()
    >>> model = torch.nn.Linear(3, 2)
    >>> result = desopt.torch.train(model, loss, (X, y), rounds=3, journal="save.journal")
    >>> desopt.torch.save("tuned.des", "save.journal")
    """
    contents = journals.read(journal)
    _identity(Path(journal), contents.header)
    last = done = len(contents.rows)
    if round is not None:
        last = checks.whole("round", round, 0, done)
    target = as_path(path)
    assert target is not None
    if target.exists():
        raise FileExistsError(f"{target} exists; delete it first or give another file")
    file = journals.Journal.create(target, contents.header, contents.snapshots[0])
    try:
        for row, answers in zip(contents.rows[:last], contents.answers, strict=False):
            file.append(row, answers)
    finally:
        file.close()


def load(model: Any, path: str | os.PathLike[str], round: int | None = None, **own: Any) -> Any:
    """Tune the base in place as the run of this file did, bit for bit, on whatever device it is on.

    ``round``: how many of its rounds (None: all). A method or sampler of your own is given again,
    as in ``desopt.replay``. Another base is refused: its result would be another model.

    >>> import copy
    >>> import torch
    >>> import desopt.torch
    >>> X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    >>> y = (X[:, 0] > 0).long()
    >>> loss = torch.nn.CrossEntropyLoss()
    >>> model = torch.nn.Linear(3, 2)
    >>> base = copy.deepcopy(model)
    >>> result = desopt.torch.train(model, loss, (X, y), rounds=3, journal="load.journal")
    >>> again = desopt.torch.load(base, "load.journal")
    >>> torch.equal(model.weight, again.weight)
    True
    """
    source, contents = Path(path), journals.read(path)
    settings = _identity(source, contents.header)
    known = dict(model.named_parameters())
    missing = [name for name in settings["parameters"] if name not in known]
    if missing:
        raise JournalError(f"{source}: the module has no parameter {missing[0]!r:.200}")
    named = [(name, known[name]) for name in settings["parameters"]]
    found = base_digest(model) if settings["covers"] == "module" else digest_of(named)
    if found != settings["base"]:
        raise JournalError(
            f"{source} was made from another base: its digest is {settings['base']}, that of this "
            f"module {found}. Load the weights that the run started from, in the same type, "
            "buffers and untrained parts included, and call load once"
        )
    space = settings["subspace"]
    with refusing(source, "its space"):
        made = None if space is None else _SPACES[space["name"]](space["d"], space["seed"])
        parameters = Parameters(named, made)
    x = replayed(source, contents, round, scattered=parameters.sparse, **own)
    if x.size != parameters.n:
        raise JournalError(f"{source} has {x.size} numbers, the module {parameters.n}")
    parameters.write(x)
    return model


def _identity(path: Path, header: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the journal says of the module."""
    with refusing(path, "its objective"):
        settings: Mapping[str, Any] = header["config"]["objective"]
        if settings["name"] != "torch":
            raise JournalError(
                f"{path} is a journal of {settings['name']!r:.80}, not of desopt.torch; use "
                "desopt.replay"
            )
        names = settings["parameters"]
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError("no names of parameters")
        return settings
