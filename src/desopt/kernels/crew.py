"""Mixture searches for many workers by threads that need no GIL.

The threads share a board. One of them, the caller, writes a turn on it: some workers, x, and the
steps' sizes. All of them take workers from the board until none is left, and the caller reads
what they found. The others then look at the board for a while, since the next turn usually comes
soon and to wake a sleeping thread takes longer than to merge some answers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from desopt.kernels.atomics import add_and_get_old, floats_at, read, write
from desopt.kernels.jit import brief, exact
from desopt.kernels.mixture import search_worker

#: Places in ``Board.state``. TICKET is turn << 32 | the next place to take, LIMIT the same turn
#: and the number of places: so nobody takes a place of one turn for that of another.
TICKET, LIMIT, X = 0, 1, 2
LOW = (1 << 32) - 1

#: Looks at the board before a thread gives up, for now: about half a millisecond.
PATIENCE = 1 << 19


class Board(NamedTuple):
    """A turn: for each place the worker, where its rows are, and whether its search is done; for
    all of them the sizes of steps, and the keys of minibatches and of steps."""

    state: Any
    workers: Any
    begin: Any
    end: Any
    done: Any
    scale: Any
    keys: Any


class Found(NamedTuple):
    """For each place: accept bits, NaN steps, and the size, columns and values of v - x."""

    accepted: Any
    nans: Any
    size: Any
    columns: Any
    change: Any


@exact
def serve(board, found, seen, most, patience, layout, members, b, y, n, l, gaussian, kind, penalty):
    """Take places and search for their workers, at most ``most`` a turn; then wait for another
    turn than ``seen``. Returns the last turn seen, when patience ends."""
    state, keys = board.state, board.keys
    while True:
        looks = 0
        while read(state, TICKET) >> 32 == seen:
            looks += 1
            if looks > patience:
                return seen
        seen = read(state, TICKET) >> 32
        for _ in range(most):
            ticket, limit = add_and_get_old(state, TICKET, 1), read(state, LIMIT)
            place = ticket & LOW
            if ticket >> 32 != limit >> 32 or place >= limit & LOW:
                break
            x, worker = carray(floats_at(state[X]), n), np.uint64(board.workers[place])
            begin, end = board.begin[place], board.end[place]
            rows_key = keys[0, 0], worker, keys[0, 2], keys[0, 3], keys[0, 4]
            key = keys[1, 0], worker, keys[1, 2], keys[1, 3], keys[1, 4]
            nans, columns, _values, change = search_worker(
                layout, members[begin:end], end - begin, b, rows_key, y, x, board.scale, l,
                gaussian, kind, penalty, found.accepted[place], key,
            )  # fmt: skip
            size = 0
            for c in range(columns.size):
                if change[c] != 0.0:  # most steps are rejected
                    found.columns[place, size], found.change[place, size] = columns[c], change[c]
                    size += 1
            found.nans[place], found.size[place] = nans, size
            write(board.done, place, 1)


@brief
def begin(state, turn, count):
    """A new turn with this many places. The ticket last: who sees it sees all the rest."""
    write(state, LIMIT, turn << 32 | count)
    write(state, TICKET, turn << 32)


@exact
def is_done(done, place, looks):
    """Whether the search of this place is done, looking so many times."""
    while looks > 0 and read(done, place) == 0:
        looks -= 1
    return looks > 0
