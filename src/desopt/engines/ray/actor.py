"""The code of an actor of the Ray engine, independent of Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from desopt.contract.types import Task
from desopt.data.shards import as_writeable
from desopt.engines.base import Job
from desopt.engines.processes import messages
from desopt.engines.processes.memory import Array, join
from desopt.engines.trials import outcome_of
from desopt.protocol.replica import Replica
from desopt.protocol.wire import WireError


class Group:
    """Some workers in one place: their data, and a replica of the state for all of them."""

    _part: tuple[int, int]
    _job: Job
    _replica: Replica

    def load(
        self,
        run: bytes,
        part: tuple[int, int],
        code: bytes,
        shards: bytes,
        cut: int,
        *arrays: Array,
    ) -> bytes:
        """Prepare to be group ``part[0]`` of ``part[1]``.

        The first ``cut`` arrays belong to the code, the others to the shards.
        """
        try:
            self._part = part
            data = join(shards, [as_writeable(array) for array in arrays[cut:]])
            self._job = replace(join(code, arrays[:cut]), shards=data)
            self._replica = Replica(self._job.algorithm, self._job.n, self._job.workers, run)
        except Exception as error:
            return messages.pack_error(error)
        return messages.READY

    def work(self, message: bytes, limit: int | None = None) -> bytes:
        """Follow the message to its round; the answers of this group's workers that are asked.

        Only bytes in and out, with which Ray is fastest. ``limit`` is the task's, if it has one.
        """

        def answers(task: Task) -> list[bytes]:
            group, groups = self._part
            own = (w for w in self._job.asked(task.round) if w % groups == group)
            limited = replace(task, limit=limit)
            return [self._replica.answer(task, self._job.work(limited, w)) for w in own]

        return self._serve(message, answers)

    def totals(self, message: bytes, workers: Sequence[int]) -> bytes:
        """Follow the message to its round; the sums over these workers' data at its x."""
        job, replica = self._job, self._replica

        def sums(task: Task) -> list[bytes]:
            return [replica.total(task, w, *job.total(replica.state.x, w)) for w in workers]

        return self._serve(message, sums)

    def prepare(self, message: bytes) -> bytes:
        """Load the data of a trial's worker and call ``setup``."""
        trial = messages.unpack_trial(message)
        try:
            self._job.prepare(trial.x, trial.key.round, trial.key.worker)
        except Exception as error:
            return messages.pack_error(error)
        return messages.READY

    def value(self, message: bytes) -> bytes:
        """The outcome of a trial."""
        try:
            return messages.pack_outcome(outcome_of(self._job, messages.unpack_trial(message)))
        except Exception as error:
            return messages.pack_error(error)

    def _serve(self, message: bytes, reply: Callable[[Task], list[bytes]]) -> bytes:
        try:
            replies = reply(self._replica.follow(message))
        except WireError:
            replies = [self._replica.ask()]
        except Exception as error:
            replies = [messages.pack_error(error)]
        return messages.pack_list(replies)
