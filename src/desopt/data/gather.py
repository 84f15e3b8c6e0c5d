"""Each worker's rows side by side: one reordered copy of a data set that is divided among workers.

A pass over a worker's rows is 2.5 to 4 times as fast as over rows that are scattered over all of
the data set (rcv1, covtype, SUSY; 10 workers), and a fresh minibatch costs 15 to 25 % less. The
copy takes the time that 3 to 15 passes save. So it is made for a run that reads the data at least
``ENOUGH_PASSES`` times: with a method that uses all of a worker's data or draws a minibatch per
iteration, or one that evaluates the training loss often.

It is made of arrays in ordinary memory, up to ``LIMIT`` bytes and a quarter of the machine's
memory. Files mapped into memory are read where they are: whoever maps a file wants no copy. Maps
that are private to the process, such as those of ``desopt.data.load``, count as ordinary memory.
The caller's arrays stay as they are, and no bit of a run depends on any of this.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desopt.contract.types import Batches, FloatArray, IndexArray
from desopt.data.matrices import plain_arrays

#: Bytes of a data set up to which it is copied.
LIMIT = 1 << 30

#: Passes over the data from which a copy pays off.
ENOUGH_PASSES = 16.0


def expected_passes(
    algorithm: Any,
    x0: FloatArray,
    *,
    rows: int | None,
    batch: float,
    rounds: int,
    eval_every: int | None,
) -> float:
    """Roughly how many times a run reads all rows; 0 if their number or the cost is unknown.

    ``batch``: the total size of the minibatches of a round; ``eval_every``: as in ``minimize``,
    where None evaluates too rarely to count.

    >>> from desopt.methods import DES
    >>> data.expected_passes(DES(), np.zeros(5), rows=1000, batch=500, rounds=10, eval_every=None)
    5.0
    """
    cost = getattr(algorithm, "cost", None)
    if not rows or cost is None:
        return 0.0
    values: int = cost.most
    per_round: dict[Batches, float] = {
        Batches.ROUND: batch / rows,
        Batches.ITERATION: values / 2 * batch / rows,  # two values on each minibatch
        Batches.ALL: values,
    }
    evaluations = rounds / eval_every if eval_every else 0.0
    return evaluations + rounds * per_round[_batches(algorithm, x0)]


def _batches(algorithm: Any, x0: FloatArray) -> Batches:
    """The data that a worker's values are over."""
    task = algorithm.plan(algorithm.init(x0))
    try:
        batches: Batches = algorithm.search(task, 0).batches
    except (AttributeError, NotImplementedError):  # a method with a work() of its own
        return Batches.ALL if algorithm.cost.whole else Batches.ROUND
    return batches


def fits_in_memory(arrays: Iterable[Any]) -> bool:
    """Whether the arrays may be copied: in ordinary memory, and not too large for it."""
    plain = [part for array in arrays for part in plain_arrays(array)]
    size = sum(part.nbytes for part in plain)
    return size <= min(LIMIT, _memory() // 4) and not any(map(_is_mapped, plain))


def gather(array: Any, order: IndexArray) -> Any:
    """The rows in this order, in the memory order of the array: batches keep theirs, too."""
    if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
        return np.take(array, order, axis=0, out=np.empty_like(array, order="F"))
    return array[order]


def _is_mapped(array: NDArray[Any]) -> bool:
    """Whether the numbers are in a file that is mapped, unless privately (copy-on-write)."""
    memory: Any = array
    while memory is not None:
        if isinstance(memory, np.memmap):
            return memory.mode != "c"
        if isinstance(memory, mmap.mmap):
            return True
        memory = memory.obj if isinstance(memory, memoryview) else getattr(memory, "base", None)
    return False


def _memory() -> int:
    """Bytes of memory of this machine; without an answer from the system, no limit."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62
