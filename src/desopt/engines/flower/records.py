"""What travels in a Flower message: one record with our wire's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from desopt.protocol.wire import Reason, WireError

#: The record's name, in messages and in a node's state.
NAME = "desopt"


@dataclass(frozen=True)
class Order:
    """To a node: a message that brings it to the round, and what to send back.

    ``description`` is for a node that is new to the run, else empty. ``limit`` is the task's, 0
    if it has none.
    """

    message: bytes
    description: bytes = b""
    work: bool = True
    total: bool = False
    limit: int = 0


_ORDER = {"message": bytes, "description": bytes, "work": bool, "total": bool, "limit": int}


@dataclass(frozen=True)
class Report:
    """From a node: its worker and its messages. No messages: it knows of no run.

    ``site`` is what the node's configuration calls it. ``found`` is JSON outside of the rounds: the
    moments of its columns, or its metrics at the end. ``error``: what went wrong instead.
    """

    worker: int
    messages: tuple[bytes, ...] = ()
    site: str = ""
    found: str = ""
    error: str = ""


#: Parts of a report that are left out where they are empty.
_MAYBE = {"site", "found", "error"}

#: The longest name of a site, and other text in a report.
_SITE, _LONGEST = 64, 2**20


def pack(values: Order | Report) -> RecordDict:
    """The record."""
    fields = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(values).items()}
    return RecordDict(
        {NAME: ConfigRecord({k: v for k, v in fields.items() if v or k not in _MAYBE})}
    )


def question(columns: Sequence[str]) -> RecordDict:
    """To a node, before the first round: the moments of these columns, please."""
    return RecordDict({NAME: ConfigRecord({"columns": list(columns)})})


def read_question(content: RecordDict) -> tuple[str, ...]:
    """The columns asked for; anything else is refused."""
    record: Any = content.get(NAME)
    if not isinstance(record, ConfigRecord) or record.keys() != {"columns"}:
        raise WireError(Reason.LENGTH, "not a desopt question: which columns?")
    columns: Any = record["columns"]
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise WireError(Reason.LENGTH, f"not a desopt question: columns {columns!r:.80}")
    return tuple(columns)


def read_order(content: RecordDict) -> Order:
    """The server's order; anything else is refused."""
    record: Any = content.get(NAME)
    if not isinstance(record, ConfigRecord) or record.keys() != _ORDER.keys():
        raise WireError(
            Reason.LENGTH,
            "not a desopt order: is the ServerApp made by desopt.federate.server_app?",
        )
    values: dict[str, Any] = dict(record.items())
    if any(type(values[name]) is not kind for name, kind in _ORDER.items()):
        kinds = {name: type(value).__name__ for name, value in values.items()}
        raise WireError(Reason.LENGTH, f"not a desopt order: {kinds}")
    if values["limit"] < 0:
        raise WireError(Reason.LENGTH, f"not a desopt order: limit {values['limit']}")
    return Order(**values)


def read_report(content: RecordDict) -> Report:
    """A node's report; anything else is refused."""
    record: Any = content.get(NAME)
    needed = {"worker", "messages"}
    if not isinstance(record, ConfigRecord) or not needed <= record.keys() <= needed | _MAYBE:
        raise ValueError(
            "not a desopt report: is the ClientApp made by desopt.federate.client_app?"
        )
    worker: Any = record["worker"]
    messages: Any = record["messages"]
    if type(worker) is not int or not isinstance(messages, list):
        raise ValueError(f"not a desopt report: worker {worker!r:.40}")
    if len(messages) > 2 or not all(isinstance(message, bytes) for message in messages):
        raise ValueError(f"not a desopt report: {len(messages)} messages, or not bytes")
    texts: dict[str, Any] = {name: record.get(name, "") for name in _MAYBE}
    if not all(isinstance(text, str) and len(text) <= _LONGEST for text in texts.values()):
        raise ValueError("not a desopt report: site, found and error must be short texts")
    site, found, error = site_name(texts["site"]), texts["found"], printable(texts["error"])
    return Report(worker, tuple(messages), site, found, error)


def site_name(text: str) -> str:
    """A stranger's name for itself, in one short line."""
    return " ".join(printable(text).split())[:_SITE]


def printable(text: str) -> str:
    """A stranger's words, without characters that move a terminal's cursor."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
