"""Threads that search for all workers of a data set which was dealt out. See ``kernels.crew``."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from desopt.contract import streams
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import FloatArray, Searched
from desopt.data import Dealt, Pick
from desopt.data.checks import refuse_width
from desopt.kernels import crew as kernels
from desopt.kernels.crew import LIMIT, LOW, PATIENCE, TICKET, Board, Found, X
from desopt.kernels.mixture import UNSEARCHED, mixture_change
from desopt.objectives.linear import LinearModel
from desopt.system.parallel import cores

#: Coordinates that the searches of one turn may touch: each takes 16 bytes.
_TOUCHED = 2**18

#: A nap of a thread that waits for a long search of another one, in seconds.
_NAP = 1e-4

_ALL = 2**62


class ThreadCrew:
    """A linear model on all workers' data; this thread and ``threads`` - 1 others. A ``Crew``."""

    def __init__(
        self, model: LinearModel, shards: Dealt, seed: int, batch_size: int, threads: int
    ) -> None:
        self._model, self._shards, self._seed = model, shards, seed
        self.batch_size = batch_size
        self._hands = threads
        # With more threads than cores, one that looks for a turn would be in another's way.
        self._patience = PATIENCE if threads <= cores() else 0
        self._form: tuple[int, int, bool] | None = None
        self._turn = 0
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._asleep = 0
        self._wake = threading.Condition()

    def search_mixtures(
        self,
        x: FloatArray,
        workers: Sequence[int],
        stream: Stream,
        scale: FloatArray,
        l: int,
        gaussian: bool,
    ) -> Iterator[Searched]:
        self._prepare((scale.size, l, gaussian), len(workers))
        board, x = self._board, np.ascontiguousarray(x, np.float64)
        if x.shape != (self._shards.arrays[0].shape[1],):  # the kernel reads it by its address
            refuse_width("the task", self._shards.arrays[0].shape[1], x.size)
        rows = Stream(self._seed, stream.round, 0, 0, Purpose.BATCH)
        board.state[X] = x.ctypes.data
        board.scale[:] = scale
        board.keys[:] = rows.key(), stream.key()
        for first in range(0, len(workers), board.done.size):
            turn = workers[first : first + board.done.size]
            for worker, searched in zip(turn, self._take_turn(turn), strict=True):
                if searched.nans == UNSEARCHED:
                    yield self._point_by_point(x, worker, stream, scale, l, gaussian)
                else:
                    yield searched

    def _point_by_point(
        self, x: FloatArray, worker: int, stream: Stream, scale: FloatArray, l: int, gaussian: bool
    ) -> Searched:
        """The search that the kernel leaves alone: the worker's value at x is not finite."""
        batch = Pick(Stream(self._seed, stream.round, worker, 0, Purpose.BATCH), self.batch_size)
        f = self._model.on_rows(self._shards[worker], batch, x)
        own = Stream(stream.seed, stream.round, worker, stream.iteration, stream.purpose)
        accepted = f.search_mixture(own, scale, l, gaussian)
        which = np.flatnonzero(accepted)
        steps = streams.mixture_block(own, scale[which], l, x.size, gaussian, which)
        return Searched(accepted, f.nans, mixture_change(x, *steps))

    def close(self) -> None:
        """End the threads, after the searches that they are in."""
        if self._form is not None:
            self._board.state[TICKET] = self._board.state[LIMIT]  # as if all places were taken
        with self._wake:
            self._form = None
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _prepare(self, form: tuple[int, int, bool], workers: int) -> None:
        """Room for a turn, and the threads: when first asked, and kept from then on."""
        if form == self._form:
            return
        self.close()
        iterations, l, gaussian = form
        touched = iterations * l
        places = max(1, min(workers, _TOUCHED // touched))
        worker, begin, end, done, nans, size = np.zeros((6, places), np.int64)
        scale, keys = np.empty(iterations), np.empty((2, 5), np.uint64)
        self._board = Board(np.zeros(3, np.int64), worker, begin, end, done, scale, keys)
        accepted = np.empty((places, iterations), np.bool_)
        columns, change = np.empty((places, touched), np.int64), np.empty((places, touched))
        self._found = Found(accepted, nans, size, columns, change)
        layout, y, *loss = self._model.form(self._shards.arrays)
        n = self._shards.arrays[0].shape[1]
        self._data = layout, self._shards.rows, self.batch_size, y, n, l, gaussian or None, *loss
        self._form, self._turn, self._failure = form, 0, None
        for _ in range(self._hands - 1):
            self._threads.append(threading.Thread(target=self._serve, args=(form,), daemon=True))
            self._threads[-1].start()

    def _serve(self, form: tuple[int, int, bool]) -> None:
        """What the other threads do: almost all of it without the GIL."""
        seen = 0
        try:
            while self._form is form:
                seen = kernels.serve(
                    self._board, self._found, seen, _ALL, self._patience, *self._data
                )
                with self._wake:
                    self._asleep += 1
                    while self._form is form and self._turn == seen:
                        self._wake.wait()
                    self._asleep -= 1
        except BaseException as error:
            self._failure = error

    def _take_turn(self, workers: Sequence[int]) -> Iterator[Searched]:
        """Put the workers on the board, and help with them, giving out what is done."""
        board, count, bounds = self._board, len(workers), self._shards.bounds
        mine = board.workers[:count]
        mine[:] = workers
        board.begin[:count], board.end[:count] = bounds[mine], bounds[mine + 1]
        board.done[:] = 0
        self._turn += 1
        try:
            kernels.begin(board.state, self._turn, count)
            if self._asleep:
                with self._wake:
                    self._wake.notify_all()
            for place in range(count):
                while not kernels.is_done(board.done, place, 1):
                    self._help(place)
                yield self._searched(place)
        except BaseException:
            self.close()  # x must stay until nobody looks at it
            raise

    def _help(self, place: int) -> None:
        """Search for some workers; where none is left, wait for the one of this place."""
        state = self._board.state
        left = int(state[LIMIT] & LOW) - int(state[TICKET] & LOW)
        if left > 0:
            # Several while there are many: what is done can be merged a little later.
            most = 1 + left // (2 * self._hands)
            kernels.serve(self._board, self._found, self._turn - 1, most, 0, *self._data)
        elif not kernels.is_done(self._board.done, place, PATIENCE):
            if self._failure is not None:
                raise self._failure
            time.sleep(_NAP)

    def _searched(self, place: int) -> Searched:
        found, size = self._found, self._found.size[place]
        # Copies, since the place is used again, and answers may be kept.
        change = found.columns[place, :size].copy(), found.change[place, :size].copy()
        return Searched(found.accepted[place], int(found.nans[place]), change)
