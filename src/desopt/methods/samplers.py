"""Distributions of mutation vectors: Gaussian, the paper's two mixtures, or a user's own.

====================  =====================================================  ============
sampler               u                                                      cost
====================  =====================================================  ============
Gaussian              N(0, I)                                                O(n)
MixtureGaussian       sqrt(n/l) sum_j e_{r_j} z_j,  z_j ~ N(0, 1)            O(l)
MixtureRademacher     sqrt(n/l) sum_j e_{r_j} z_j,  z_j = +-1                O(l)
====================  =====================================================  ============

with r_j uniform on the n coordinates, with replacement (Definitions 1 and 2 of the paper).
All have mean 0 and covariance I.

>>> list(desopt.samplers.SAMPLERS)
['Gaussian', 'MixtureGaussian', 'MixtureRademacher']
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from desopt.contract import streams
from desopt.contract.errors import check_name, user_code
from desopt.contract.space import Box
from desopt.contract.streams import Purpose, Stream
from desopt.contract.types import BoolArray, ByteArray, FloatArray, IndexArray, Step
from desopt.methods.proposals import (
    GaussianProposals,
    Key,
    MixtureProposals,
    Proposals,
    VectorProposals,
    as_step,
)


class Sampler(ABC):
    """A distribution of mutation vectors. Only ``vector`` must be written.

    >>> issubclass(desopt.samplers.Gaussian, desopt.samplers.Sampler)
    True
    """

    #: Whether a step changes every coordinate. The final point is then worth handing over
    #: in memory; replaying l coordinates per step is cheaper than keeping n numbers.
    dense = True

    @abstractmethod
    def vector(self, key: Key, k: int, n: int) -> Step:
        """The mutation vector of iteration k: (coordinates or None, values)."""

    def proposals(self, alpha: FloatArray, key: Key, n: int) -> Proposals:
        """The steps alpha[k] u_k of a worker's round."""
        return VectorProposals(self.vector, key, alpha, n)

    def replay(
        self, v: FloatArray, alpha: FloatArray, accepted: BoolArray, key: Key,
        box: Box | None = None,
    ) -> None:  # fmt: skip
        """Take v from x to v_K by the accepted steps, in place."""
        self.proposals(alpha, key, v.size).replay(v, accepted, box)

    def changes(
        self, x: FloatArray, alpha: FloatArray, masks: ByteArray, workers: IndexArray, key: Key
    ) -> Iterator[Step]:
        """v_K - x of several workers' packed accept bits; the key's worker is not used."""
        return self.proposals(alpha, key, x.size).changes(x, masks, workers)

    def settings(self) -> dict[str, Any]:
        """Name and parameters, for the journal's header.

        By default the fields of a dataclass that are texts or numbers. Others may keep their
        defaults; a class that gives them values describes these itself, as plain JSON values.
        """
        own: list[Field[Any]] = [f for f in fields(self) if f.init] if is_dataclass(self) else []
        values = {field.name: getattr(self, field.name) for field in own}
        values = {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
        plain = {k: v for k, v in values.items() if isinstance(v, str | int | float | None)}
        if type(self).settings is Sampler.settings:
            for field in own:
                if field.name not in plain and field.compare:
                    self._refuse_unless_default(field, values[field.name])
        return {"name": type(self).__name__} | plain

    def _refuse_unless_default(self, field: Field[Any], value: Any) -> None:
        """A value that settings lack: another one would continue the same journal."""
        default = field.default
        if value is default or (type(value) is type(default) and value == default):
            return
        raise TypeError(
            f"sampler {type(self).__name__}: {field.name} is neither a text nor a number, but "
            f"{value!r:.80}; define settings(), which describes it by plain JSON values"
        )


@dataclass(frozen=True)
class Gaussian(Sampler):
    """u ~ N(0, I).

    >>> key = desopt.samplers.Key(seed=0, round=0, worker=0)
    >>> index, u = desopt.samplers.Gaussian().vector(key, 0, 3)
    >>> index is None, u.round(3)
    (True, array([ 0.011, -0.21 ,  0.353]))
    """

    def vector(self, key: Key, k: int, n: int) -> Step:
        return None, streams.normals(Stream(*key, k, Purpose.NORMAL), n)

    def proposals(self, alpha: FloatArray, key: Key, n: int) -> Proposals:
        return GaussianProposals(Stream(*key, 0, Purpose.NORMAL), alpha, n)


@dataclass(frozen=True)
class MixtureGaussian(Sampler):
    """Definition 1: l coordinates, z_j ~ N(0, 1).

    >>> key = desopt.samplers.Key(seed=0, round=0, worker=0)
    >>> index, u = desopt.samplers.MixtureGaussian(l=2).vector(key, 0, 100)
    >>> index, u.round(3)
    (array([80, 74]), array([ 0.075, -1.484]))
    """

    l: int = 8
    dense = False

    def __post_init__(self) -> None:
        _check_mixture(self.l)

    def vector(self, key: Key, k: int, n: int) -> Step:
        index = streams.integers(Stream(*key, k, Purpose.COORDINATE), self.l, n)
        z = streams.normals(Stream(*key, k, Purpose.NORMAL), self.l)
        return index, math.sqrt(n / self.l) * z

    def proposals(self, alpha: FloatArray, key: Key, n: int) -> Proposals:
        return _mixture(alpha, key, n, self.l, gaussian=True)


@dataclass(frozen=True)
class MixtureRademacher(Sampler):
    """Definition 2: l coordinates, z_j = -1 or 1 with probability 1/2.

    >>> key = desopt.samplers.Key(seed=0, round=0, worker=0)
    >>> index, u = desopt.samplers.MixtureRademacher(l=2).vector(key, 0, 100)
    >>> index, u.round(3)
    (array([80, 74]), array([7.071, 7.071]))
    """

    l: int = 8
    dense = False

    def __post_init__(self) -> None:
        _check_mixture(self.l)

    def vector(self, key: Key, k: int, n: int) -> Step:
        stream = Stream(*key, k, Purpose.COORDINATE)
        index = streams.integers(stream, self.l, n)
        z = np.where(streams.words(stream, self.l) & np.uint64(1), 1.0, -1.0)
        return index, math.sqrt(n / self.l) * z

    def proposals(self, alpha: FloatArray, key: Key, n: int) -> Proposals:
        return _mixture(alpha, key, n, self.l, gaussian=False)


def _check_mixture(l: Any) -> None:
    if not isinstance(l, int) or l < 1:
        raise ValueError(f"mixture must be a whole number of coordinates >= 1, got {l!r}")


def _mixture(alpha: FloatArray, key: Key, n: int, l: int, gaussian: bool) -> MixtureProposals:
    """alpha_k sqrt(n/l) multiplies z."""
    stream = Stream(*key, 0, Purpose.COORDINATE)
    return MixtureProposals(stream, alpha * math.sqrt(n / l), l, gaussian, n)


@dataclass(frozen=True)
class CustomSampler(Sampler):
    """A user's function ``draw(rng, n)``: a vector of n numbers, or (coordinates, values).

    The theory assumes mean 0 and covariance I. The only source of randomness must be ``rng``, a
    NumPy generator keyed by (seed, round, worker, iteration).

    >>> key = desopt.samplers.Key(seed=0, round=0, worker=0)
    >>> sampler = desopt.samplers.CustomSampler(lambda rng, n: rng.laplace(size=n))
    >>> sampler.vector(key, 0, 4)[1].shape
    (4,)
    """

    draw: Callable[[np.random.Generator, int], Any]
    #: Its name in the registry, if it has one.
    name: str | None = None

    def vector(self, key: Key, k: int, n: int) -> Step:
        with user_code("sampler"):
            drawn = self.draw(streams.generator(Stream(*key, k, Purpose.USER)), n)
        if isinstance(drawn, tuple) and len(drawn) == 2:
            return as_step(*drawn, n)
        return as_step(None, drawn, n)

    def settings(self) -> dict[str, Any]:
        if self.name is not None:
            return {"name": self.name}
        return {"name": "CustomSampler", "draw": getattr(self.draw, "__qualname__", "draw")}


#: The samplers that a journal can name; ``desopt.register`` adds to them.
SAMPLERS: dict[str, Callable[..., Sampler]] = {
    cls.__name__: cls for cls in (Gaussian, MixtureGaussian, MixtureRademacher)
}


def restore_sampler(settings: dict[str, Any]) -> Sampler:
    """The sampler that these ``settings()`` describe.

    >>> settings = desopt.samplers.MixtureRademacher(l=4).settings()
    >>> desopt.samplers.restore_sampler(settings)
    MixtureRademacher(l=4)
    """
    values = dict(settings)
    name = values.pop("name")
    if name not in SAMPLERS:
        own = values.get("draw", name)
        raise ValueError(
            f"this run used a sampler of the user's own ({own}); pass it again: "
            "desopt.replay(journal, round, sampler=...), or import the plug-in that registers it"
        )
    return SAMPLERS[name](**values)


def as_sampler(sampler: Any) -> Sampler | None:
    """The ``sampler`` argument: a Sampler, the name of one, the user's draw(rng, n), or None.

    >>> desopt.samplers.as_sampler("Gaussian")
    Gaussian()
    """
    if sampler is None or isinstance(sampler, Sampler):
        return sampler
    if isinstance(sampler, str):
        check_name("sampler", sampler, SAMPLERS)
        return SAMPLERS[sampler]()
    if callable(sampler) and not isinstance(sampler, type):
        return CustomSampler(sampler)
    raise TypeError(
        f"sampler must be a Sampler, the name of one or a function draw(rng, n), got {sampler!r}"
    )


__all__ = [
    "SAMPLERS",
    "CustomSampler",
    "Gaussian",
    "Key",
    "MixtureGaussian",
    "MixtureRademacher",
    "Sampler",
    "as_sampler",
    "restore_sampler",
]
