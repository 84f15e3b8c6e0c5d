"""The server's side of the wire as plain logic, without a connection.

A ``Server`` has the state, and for each peer a message that brings it to the current round: the
answers of the rounds it has missed, or the state itself if that is smaller. A
``protocol.replica.Replica`` is the peer's side: it keeps the state by the same merges, for one
worker or several. A transport carries bytes between them. It may lose, repeat, delay and
reorder them: messages that do not fit are refused, missing ones requested again, and the bits of
x stay those of a serial run.

::

    server.admit(peer, workers)                 replica = Replica.joining(description)
    data = server.message_for(peer)     ---->   task = replica.follow(data)
    server.receive(peer, data)          <----   data = replica.answer(task, answer)
    server.finish_round()
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from desopt.contract import codec
from desopt.contract.payload import layout_of
from desopt.contract.types import Algorithm, Answer
from desopt.protocol import wire
from desopt.protocol.wire import Reason, Total, WireError

logger = logging.getLogger("desopt.wire")

#: Refusals that are normal on any network; all others are logged as warnings.
_ORDINARY = (Reason.LATE, Reason.DUPLICATE)

#: Refusals per level that are logged in a round; all of them could fill the disk.
_LOGGED = 20


@dataclass
class _Peer:
    """The workers that a peer hosts, and the round it is known to have reached, if any."""

    workers: frozenset[int]
    stands: int | None = None
    #: Whether it was sent to the published snapshot, and whether it did not find it there.
    sent_away: bool = False
    returned: bool = False


@dataclass(frozen=True)
class _Past:
    """A past round: the task's digest and the answers."""

    digest: bytes
    answers: bytes


class Server:
    """The state, and the messages for every peer.

    ``answers`` and ``totals`` are those of the current round, by worker, and ``asked`` the
    workers whose answers count in it: the argument ``asked(round)`` (None: all). ``bytes_up`` and
    ``bytes_down`` count all messages, ``refused`` the refusals by reason, and ``refusal`` is the
    last of them.

    ``batch_size`` bounds the counts that workers may claim. ``trusted``: the peers are our own
    processes; their counts are not checked, and their sums may be infinite or NaN, as in a serial
    run. ``replay_bytes``: the size above which the state replaces missed rounds (None, or more:
    the state's own size; 0: always the state). ``called(peer)`` is its name in the log. Calls must
    not overlap.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        state: Any,
        workers: int,
        *,
        asked: Callable[[int], Collection[int]] | None = None,
        run: bytes | None = None,
        replay_bytes: int | None = None,
        batch_size: int | None = None,
        trusted: bool = False,
        called: Callable[[Any], str] = repr,
    ) -> None:
        self.algorithm, self._called = algorithm, called
        self.workers = workers
        self._asked = asked or (lambda _round: range(workers))
        self.run = secrets.token_bytes(8) if run is None else run
        self._float32 = codec.in_float32(algorithm)
        most = codec.state_bytes(state, self._float32)
        self.replay_bytes = most if replay_bytes is None else min(replay_bytes, most)
        self.refused: Counter[Reason] = Counter()
        self.refusal: WireError | None = None
        self.bytes_up = self.bytes_down = 0
        self._layout, self._trusted = layout_of(algorithm), trusted
        self._cost = None if trusted else algorithm.cost  # which counts are checked against
        self._rows = wire.MAX_ROWS if batch_size is None else batch_size
        self._peers: dict[Hashable, _Peer] = {}
        self._past: deque[_Past] = deque()
        self._kept = 0
        self._begin(state)

    def admit(self, peer: Hashable, workers: Iterable[int]) -> None:
        """Let a peer answer for these workers; it has no state yet."""
        known = self._peers.get(peer, _Peer(frozenset()))
        self._peers[peer] = _Peer(
            frozenset(workers), sent_away=known.sent_away, returned=known.returned
        )

    def publish(self) -> bytes:
        """The state as a message that peers may fetch elsewhere, in this round.

        A peer that needs it gets the digest alone from now on, and the state itself if it asks
        again.
        """
        self._published = True
        return self._message(None)

    def message_for(self, peer: Hashable) -> bytes:
        """The message that brings the peer to the current round; counted as sent."""
        its = self._peers[peer]
        stands = its.stands
        message = self._ready.get(stands)
        if self._published and not its.returned and self._is_far(stands):
            its.sent_away = True
            message = wire.pack_update(
                self.run, self.state.round, self._digest, self._layout.size, []
            )
        elif message is None:
            message = self._message(stands)
            if stands in (None, self.state.round - 1):  # the usual ones
                self._ready[stands] = message
        self.bytes_down += len(message)
        return message

    def receive(self, peer: Hashable, data: bytes) -> Answer | Total | None:
        """The peer's answer or total; None for a question and for a refused message."""
        self.bytes_up += len(data)
        try:
            return self._read(peer, data)
        except WireError as error:
            self.refused[error.reason] += 1
            self.refusal = error
            self._log(peer, error)
            return None

    def in_step(self, peer: Hashable) -> bool:
        """Whether the peer is known to stand where the server stands."""
        return peer in self._peers and self._peers[peer].stands == self.state.round

    def finish_round(self) -> Any:
        """Merge the answers in order of the workers; the new state."""
        answers = [self.answers[worker] for worker in sorted(self.answers)]
        self.advance(self.algorithm.merge(self.state, answers), answers)
        return self.state

    def advance(self, state: Any, answers: Sequence[Answer]) -> None:
        """Begin the round of this state, which was merged from these answers."""
        past = _Past(self._digest, codec.pack_round(answers))
        self._past.append(past)
        self._kept += len(past.answers)
        # beyond this, peers get the state
        while self._kept > self.replay_bytes or len(self._past) > wire.MAX_REPLAY:
            self._kept -= len(self._past.popleft().answers)
        self._begin(state)

    def _begin(self, state: Any) -> None:
        self.state = state
        self._digest = wire.task_digest(self.algorithm.plan(state))
        self.answers: dict[int, Answer] = {}
        self.totals: dict[int, Total] = {}
        asked = self._asked(state.round)
        self.asked = asked if isinstance(asked, range) else frozenset(asked)
        self._ready: dict[int | None, bytes] = {}
        self._published = False
        self._logged: Counter[int] = Counter()

    def _log(self, peer: Hashable, error: WireError) -> None:
        level = logging.INFO if error.reason in _ORDINARY else logging.WARNING
        self._logged[level] += 1
        if self._logged[level] <= _LOGGED:
            logger.log(level, "refused a message of %s: %s", self._called(peer), error)
        elif self._logged[level] == _LOGGED + 1:
            logger.log(level, "more refusals in round %d are only counted", self.state.round)

    def _is_far(self, stands: int | None) -> bool:
        """Whether a peer that stands there needs the state."""
        return stands is None or self.state.round - stands > len(self._past)

    def _message(self, stands: int | None) -> bytes:
        round = self.state.round
        if stands is None or self._is_far(stands):
            return wire.pack_snapshot(self.run, self._digest, self.state, self._float32)
        missed = [self._past[i].answers for i in range(stands - round, 0)]
        return wire.pack_update(self.run, round, self._digest, self._layout.size, missed)

    def _digest_at(self, round: int) -> bytes | None:
        back = self.state.round - round
        if back == 0:
            return self._digest
        return self._past[-back].digest if 0 < back <= len(self._past) else None

    def _read(self, sender: Hashable, data: bytes) -> Answer | Total | None:
        peer = self._peers.get(sender)
        if peer is None:
            raise WireError(Reason.WORKER, "a peer that hosts no workers")
        kinds = wire.ANSWER, wire.TOTAL, wire.ASK
        message = wire.unseal(data, kinds, wire.OVERHEAD + self._layout.size, self.run)
        if message.kind == wire.ASK:
            known = self._digest_at(message.round) == message.digest
            peer.stands = message.round if known else None
            peer.returned |= peer.sent_away and not known
            peer.sent_away = False
            return None
        self._check_position(peer, message)
        if message.kind == wire.TOTAL:
            total = wire.unpack_total(message.body, self.workers, finite=not self._trusted)
            self._check_news(peer, total.worker, self.totals)
            self.totals[total.worker] = total
            return total
        answer = wire.unpack_answer(message.body, self.workers, self._layout)
        if self._cost is not None:
            rows = wire.MAX_ROWS if self._cost.whole else self._rows
            wire.check_counts(answer, self._cost, rows)
        self._check_news(peer, answer.worker, self.answers)
        if answer.worker not in self.asked:
            raise WireError(Reason.WORKER, f"worker {answer.worker} was not asked in this round")
        self.answers[answer.worker] = answer
        return answer

    def _check_position(self, peer: _Peer, message: wire.Message) -> None:
        """Refuse a message of another round or state; a diverged peer gets the state next."""
        now = self.state.round
        if message.round != now:
            reason = Reason.LATE if message.round < now else Reason.GAP
            raise WireError(reason, f"round {message.round}; this is round {now}")
        if message.digest != self._digest:
            peer.stands = None
            raise WireError(Reason.DIVERGED, f"another x than ours in round {now}")
        peer.stands = now

    @staticmethod
    def _check_news(peer: _Peer, worker: int, known: Mapping[int, Any]) -> None:
        if worker not in peer.workers:
            raise WireError(Reason.WORKER, f"worker {worker} is not with this peer")
        if worker in known:
            raise WireError(Reason.DUPLICATE, f"worker {worker} has answered already")


class Traffic:
    """The bytes that a ``Server`` would exchange with one replica per worker.

    For engines without messages. Every worker asked counts as answering, so the bytes of a
    round depend on the run's settings and the state alone: a resumed run counts the same. No
    message is built, except for the state where it is the shorter one.
    """

    def __init__(
        self, algorithm: Algorithm, workers: int, asked: Callable[[int], Sequence[int]]
    ) -> None:
        self._size, self._workers, self._asked = layout_of(algorithm).size, workers, asked
        self._float32 = codec.in_float32(algorithm)
        # Rounds that an update can replay, and for their workers the last one that asked them.
        self._recent: deque[tuple[int, Sequence[int]]] = deque()
        self._last: dict[int, int] = {}
        self._up = self._down = 0

    def count(self, state: Any) -> None:
        """Add the messages of the round that begins with this state."""
        asked = self._asked(state.round)
        answers = codec.round_bytes(len(asked), self._size)
        kept = min(codec.state_bytes(state, self._float32) // answers, wire.MAX_REPLAY)
        self._up += len(asked) * (wire.OVERHEAD + self._size)
        for missed, workers in self._missed(state.round, asked, kept).items():
            if missed is None:
                message = len(wire.pack_snapshot(bytes(8), wire.NOWHERE, state, self._float32))
            else:
                message = wire.update_bytes(missed * answers)
            self._down += workers * message

    def take(self) -> tuple[int, int]:
        """Bytes up and down since the last call."""
        taken = self._up, self._down
        self._up = self._down = 0
        return taken

    def _missed(self, round: int, asked: Sequence[int], kept: int) -> Mapping[int | None, int]:
        """Rounds to replay (None: more than are kept), and the number of workers that need them."""
        if len(asked) == self._workers:
            return {1 if round and kept else None: self._workers}
        first = max(0, round - kept)
        for earlier in range(max(first, self._recent[-1][0] + 1 if self._recent else 0), round):
            workers = self._asked(earlier)
            self._recent.append((earlier, workers))
            self._last.update(dict.fromkeys(workers, earlier))
        while self._recent and self._recent[0][0] < first:
            earlier, workers = self._recent.popleft()
            for worker in workers:
                if self._last[worker] == earlier:
                    del self._last[worker]
        last = map(self._last.get, asked)
        return Counter(None if seen is None else round - seen for seen in last)
