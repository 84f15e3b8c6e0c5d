"""Cores, limits on the threads of libraries, and ordered work on several threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

#: Variables for libraries that use all cores by default. Those of the first group fall back on
#: OMP_NUM_THREADS; PyTorch reads OpenMP's and MKL's.
_LIKE_OPENMP = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_OTHERS = ("OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS")
THREAD_VARIABLES = _LIKE_OPENMP + _OTHERS

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_limits(processes: int) -> dict[str, str]:
    """Environment variables that give each of these processes its share of the cores.

    Variables set by the user are kept.
    """
    names = _OTHERS if os.environ.get("OMP_NUM_THREADS") else THREAD_VARIABLES
    share = str(max(1, cores() // processes))
    return {name: share for name in names if not os.environ.get(name)}


def in_chunks(work: Callable[[list[T]], list[R]], items: Iterable[T], size: int) -> Iterator[R]:
    """The results of ``work`` on chunks of ``size`` items, in the order of the items.

    More than one chunk is spread over all cores, a few at a time, so memory does not depend on
    the number of items.
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
