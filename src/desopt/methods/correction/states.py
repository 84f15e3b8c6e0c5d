"""The states of ``des-c``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from desopt.contract.types import FloatArray
from desopt.methods.des import DESState


class Table(NamedTuple):
    """The estimates as ``kernels.correction.side_by_side`` lays them out."""

    lines: FloatArray
    means: FloatArray


@dataclass(frozen=True)
class DESCState(DESState):
    """The server's side after ``round`` rounds.

    ``memory`` is g, h, delta_0, ..., delta_M-1, one after the other. ``spread`` has the lengths
    ||delta_i||, ``answered`` the number of the round after the last answer of each worker, 0 if
    there was none.
    """

    memory: FloatArray
    spread: FloatArray
    answered: FloatArray

    @property
    def stage(self) -> float:
        """0: nothing is known; 1: slopes are."""
        return float(self.answered.any())

    @cached_property
    def table(self) -> list[Table]:
        """The table of ``memory`` that a merge has left, or nothing; no part of the state.

        A merge takes it out, since it writes in it. Where there is none it makes one, with the
        same bits.
        """
        return []


@dataclass(frozen=True)
class AdaptedDESCState(DESCState):
    """With log2 of alpha_0, and whether it is found: 0 or 1."""

    level: float
    found: float

    @property
    def stage(self) -> float:
        """That of ``last_step``."""
        return super().stage + self.found


def estimates(memory: FloatArray, n: int, worker: int) -> tuple[FloatArray, ...]:
    """g, h and delta of a worker: views."""
    rows = memory.reshape(-1, n)
    return rows[0], rows[1], rows[2 + worker]
