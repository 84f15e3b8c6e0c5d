"""Threads for compiled work that has an order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

#: Libraries that take all cores unless a variable says how many; the first group looks at
#: OMP_NUM_THREADS where its own is missing. PyTorch looks at OpenMP's and MKL's.
_LIKE_OPENMP = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_OTHERS = ("OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS")

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_limits(processes: int) -> dict[str, str]:
    """Variables that give each of so many processes its share of the cores.

    What the user's environment says already is left alone.
    """
    told = bool(os.environ.get("OMP_NUM_THREADS"))
    names = _OTHERS if told else _LIKE_OPENMP + _OTHERS
    share = str(max(1, cores() // processes))
    return {name: share for name in names if not os.environ.get(name)}


def in_chunks(work: Callable[[list[T]], list[R]], items: Iterable[T], size: int) -> Iterator[R]:
    """The results of ``work`` on ``size`` items at a time, in the order of the items.

    On all cores where there is more than one chunk; a few chunks at a time, so that memory does
    not depend on the number of items.
    """
    left = iter(items)
    first = list(islice(left, size))
    if len(first) < size:
        yield from work(first)
        return
    threads = cores()
    with ThreadPoolExecutor(threads, "desopt") as pool:
        ahead: deque[Future[list[R]]] = deque([pool.submit(work, first)])
        while ahead:
            while len(ahead) < 2 * threads and (chunk := list(islice(left, size))):
                ahead.append(pool.submit(work, chunk))
            yield from ahead.popleft().result()
