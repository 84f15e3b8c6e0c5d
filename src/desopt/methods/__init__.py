"""The methods: Algorithm 1, DES with its samplers, and the four it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from desopt.contract.types import Algorithm
from desopt.methods.des import DES
from desopt.methods.es import ES
from desopt.methods.es_csa import ESCSA
from desopt.methods.fed_zo import FedZOGD, FedZOSGD
from desopt.methods.samplers import (
    Gaussian,
    MixtureGaussian,
    MixtureRademacher,
    Sampler,
    restore_sampler,
)
from desopt.methods.zo_signsgd import ZOSignSGD


@dataclass(frozen=True)
class Method:
    """An algorithm and, for those that mutate, the sampler that the name stands for."""

    algorithm: type[Any]
    sampler: type[Sampler] | None = None

    def make(self, name: str, settings: Mapping[str, Any]) -> Algorithm:
        """The algorithm with those of the settings that it has."""
        known = {field.name for field in fields(self.algorithm)}
        chosen = {key: value for key, value in settings.items() if key in known}
        if self.sampler is not None:
            sparse = not self.sampler.dense
            own = self.sampler(l=settings["mixture"]) if sparse else self.sampler()  # type: ignore[call-arg]
            chosen["sampler"] = settings.get("sampler") or own
        algorithm: Algorithm = self.algorithm(name=name, **chosen)
        return algorithm


#: The methods by name; the contract tests run over all of them.
METHODS: dict[str, Method] = {
    "es": Method(ES, Gaussian),
    "des": Method(DES, Gaussian),
    "des-mg": Method(DES, MixtureGaussian),
    "des-mr": Method(DES, MixtureRademacher),
    "fed-zo-gd": Method(FedZOGD),
    "fed-zo-sgd": Method(FedZOSGD),
    "zo-signsgd": Method(ZOSignSGD),
    "es-csa": Method(ESCSA),
}


def restore(settings: Mapping[str, Any], sampler: Sampler | None = None) -> Algorithm:
    """The algorithm that these ``settings()`` describe, as a journal's header has them."""
    name = settings["name"]
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}: choose from {', '.join(METHODS)}")
    values = dict(settings)
    if METHODS[name].sampler is not None:
        values["sampler"] = sampler or restore_sampler(settings["sampler"])
    algorithm: Algorithm = METHODS[name].algorithm(**values)
    if algorithm.settings() != settings:
        raise ValueError(
            f"sampler {settings['sampler']} made this run, not {sampler.settings()}"  # type: ignore[union-attr]
        )
    return algorithm


__all__ = ["DES", "ES", "ESCSA", "METHODS", "FedZOGD", "FedZOSGD", "Method", "ZOSignSGD", "restore"]
