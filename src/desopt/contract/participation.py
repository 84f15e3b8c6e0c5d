"""Which workers are asked in a round: a function of (seed, round), so everyone can compute it.

With M workers and a share p, exactly max(1, round(p M)) of them, by Floyd's method: for
j = M - c, ..., M - 1 draw r uniform on 0..j and take r, or j where r was taken already. One
random word per worker asked, whatever M is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from desopt.contract import streams
from desopt.contract.streams import SERVER, Purpose, Stream

_LOW, _32 = np.uint64(2**32 - 1), np.uint64(32)


@lru_cache(maxsize=4)  # a server needs this round's and the last one's, several times
def participants(seed: int, round: int, workers: int, participation: float) -> Sequence[int]:
    """The workers asked in this round, in increasing order."""
    count = asked(workers, participation)
    if count == workers:
        return range(workers)
    words = streams.words(Stream(seed, round, SERVER, 0, Purpose.PARTICIPATION), count)
    high = np.arange(workers - count + 1, workers + 1, dtype=np.uint64)
    # floor(w h / 2^64) without 128-bit numbers, since h < 2^32
    drawn = ((words >> _32) * high + (((words & _LOW) * high) >> _32)) >> _32
    taken: set[int] = set()
    for j, r in enumerate(drawn.tolist(), workers - count):
        taken.add(j if r in taken else r)
    return tuple(sorted(taken))


def asked(workers: int, participation: float) -> int:
    """The number of workers asked in a round; half a worker rounds to the even number."""
    return max(1, round(participation * workers))
