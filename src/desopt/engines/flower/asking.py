"""A question to every node outside the rounds: the moments of columns, the end of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from desopt.engines.flower.nodes import ATTEMPTS
from desopt.engines.flower.records import printable

#: Seconds that a message is valid unless a deadline is shorter.
VALID = 3600.0

#: Seconds between two lines about what is being waited for.
PATIENCE = 60.0


@dataclass
class Asking:
    """Asks every connected node until it has answered, three times at most.

    ``content(node)`` is the question. ``take(node, content)`` reads an answer, and raises
    ValueError for one that does not fit. ``failures`` are the last words of nodes that failed.
    """

    grid: Grid
    kind: str
    content: Callable[[int], RecordDict]
    take: Callable[[int, RecordDict], None]
    poll: float
    failures: dict[int, str] = field(default_factory=dict)

    def until(
        self, complete: Callable[[float, bool], bool], waiting: Callable[[float], None]
    ) -> None:
        """Until ``complete(seconds, idle)``, where ``idle`` means that nobody is left to ask.

        ``waiting(seconds)`` is called every minute.
        """
        opened = said = time.monotonic()
        pending: dict[str, int] = {}
        done: set[int] = set()
        failed: Counter[int] = Counter()
        while True:
            present = self.grid.get_node_ids()
            free = [n for n in sorted(present) if n not in done and failed[n] < ATTEMPTS]
            idle = bool(present) and not free and not pending
            now = time.monotonic()
            if complete(now - opened, idle):
                return
            if now - said > PATIENCE:
                said = now
                waiting(now - opened)
            busy = set(pending.values())
            ask = [node for node in free if node not in busy]
            messages = [
                Message(self.content(n), n, self.kind, ttl=VALID, group_id="0") for n in ask
            ]
            if messages:
                ids = self.grid.push_messages(messages)
                pending |= {id: n for id, n in zip(ids, ask, strict=True) if id is not None}
            for reply in self.grid.pull_messages(list(pending)) if pending else ():
                node = pending.pop(reply.metadata.reply_to_message_id, None)
                if node is None:
                    continue
                try:
                    if reply.has_error():
                        raise ValueError(printable(reply.error.reason or ""))
                    self.take(node, reply.content)
                    done.add(node)
                    self.failures.pop(node, None)
                except ValueError as error:
                    failed[node] += 1
                    self.failures[node] = str(error)
            if not complete(now - opened, False):
                time.sleep(self.poll)
