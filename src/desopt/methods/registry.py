"""The methods by name, with all facts about them that the rest of the package uses.

Reports, figures, command-line help, studies, benchmarks, the tables of the documentation and the
tests derive from ``METHODS``; nothing else tests a method's name. A new method is its own file,
one entry here and one in the tests' oracle. A fact that an algorithm object states by itself
(one worker only, an ``aggregate`` setting) is read from its class; layout, cost and minibatches
are the algorithm's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from inspect import signature
from typing import Any, NamedTuple

from desopt.contract.errors import check_name
from desopt.contract.space import Box
from desopt.contract.types import Algorithm
from desopt.methods import cma_es, des_c, es_csa, fedavg_es, zo_nsgd
from desopt.methods.base import PopulationAlgorithm, ProblemSize, TwoPointAlgorithm
from desopt.methods.cma_es import CMAES
from desopt.methods.decomfl import DeComFL
from desopt.methods.des import DES
from desopt.methods.des_c import DESC
from desopt.methods.es import ES
from desopt.methods.es_csa import ESCSA
from desopt.methods.fed_zo import FedZOGD, FedZOSGD
from desopt.methods.fedavg_es import FedAvgES
from desopt.methods.fedkseed import FedKSeed
from desopt.methods.feedsign import FeedSign
from desopt.methods.samplers import (
    Gaussian,
    MixtureGaussian,
    MixtureRademacher,
    Sampler,
    restore_sampler,
)
from desopt.methods.zo_nsgd import ZONSGD
from desopt.methods.zo_signsgd import ZOSignSGD


class Look(NamedTuple):
    """A method's line in every figure, in matplotlib's notation: one of ``DASHES``, ``MARKERS``.

    The colours are Okabe and Ito's, distinct for most colour-blind readers. Dash and marker
    differ as well, for printing in grey.
    """

    colour: str
    dash: str
    marker: str


#: What the interactive page can draw (``report/chart.js``); its colours are those of CSS, #rrggbb.
DASHES, MARKERS = ("-", "--", "-.", ":"), tuple("os^vDPX")


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method: its algorithm, and its facts for people and for cost models."""

    algorithm: type[Any]
    #: The mutation sampler that the name stands for; None for methods without mutations.
    sampler: type[Sampler] | None = None
    #: The name in figures, tables and text.
    title: str
    look: Look
    #: Contents of a worker's answer for a round, of K iterations or lambda members.
    answer: str
    #: Function values per worker and round.
    values: str
    #: Whether the paper's experiments compare it (section 5.1).
    compared: bool = False
    #: Settings derived from the size of the problem, unless the user gives them.
    defaults: Callable[[ProblemSize], Mapping[str, Any]] | None = None

    @property
    def single_worker(self) -> bool:
        """Whether one worker has all the data."""
        return bool(getattr(self.algorithm, "single_worker", False))

    @property
    def pairs(self) -> bool:
        """Whether function values come in pairs, as two-point estimates: K must be even."""
        return issubclass(self.algorithm, TwoPointAlgorithm)

    @property
    def one_population(self) -> bool:
        """Whether all workers evaluate the same points, so that only their data differ."""
        return issubclass(self.algorithm, PopulationAlgorithm)

    @property
    def adapts(self) -> bool:
        """Whether ``step_size="auto"`` is possible."""
        return bool(getattr(self.algorithm, "adapts", False))

    @property
    def aggregates(self) -> bool:
        """Whether workers' points are averaged, so that ``aggregate`` applies."""
        return "aggregate" in self.settings

    @property
    def settings(self) -> frozenset[str]:
        """The names of its hyper-parameters."""
        return frozenset(field.name for field in fields(self.algorithm))

    @property
    def _required(self) -> frozenset[str]:
        """The hyper-parameters for which the class, perhaps a user's own, has no default."""
        return frozenset(field.name for field in fields(self.algorithm) if field.default is MISSING)

    def derived(self, problem: ProblemSize) -> Mapping[str, Any]:
        """Defaults that depend on the size of the problem, such as a population."""
        return self.defaults(problem) if self.defaults else {}

    def make(
        self, name: str, settings: Mapping[str, Any], problem: ProblemSize | None = None
    ) -> Algorithm:
        """The algorithm with its share of the settings; None stands for the default."""
        given = {key: value for key, value in settings.items() if value is not None}
        chosen = {**self.derived(problem)} if problem else {}
        chosen |= {key: value for key, value in given.items() if key in self.settings}
        if "step_size" in self._required:
            chosen.setdefault("step_size", 1.0)
        if self.sampler is not None:
            chosen.setdefault("sampler", self._sampler(given))
        algorithm: Algorithm = self.algorithm(**chosen | {"name": name})
        return algorithm

    def _sampler(self, settings: Mapping[str, Any]) -> Sampler:
        assert self.sampler is not None
        takes_mixture = "l" in signature(self.sampler).parameters and "mixture" in settings
        return self.sampler(l=settings["mixture"]) if takes_mixture else self.sampler()  # type: ignore[call-arg]


#: What ``method="auto"`` stands for: where workers have data, and for a plain function.
WITH_DATA, WITHOUT_DATA = "des-mr", "es-csa"

#: The methods in the paper's order; ``desopt.register`` adds to them. The contract tests run over
#: all of them.
METHODS: dict[str, Method] = {
    "es": Method(
        algorithm=ES,
        sampler=Gaussian,
        title="ES",
        look=Look("#999999", ":", "s"),
        answer="K bits",
        values="K + 1",
    ),
    "des": Method(
        algorithm=DES,
        sampler=Gaussian,
        title="DES",
        look=Look("#000000", "-", "^"),
        answer="K bits",
        values="K + 1",
        compared=True,
    ),
    "des-mg": Method(
        algorithm=DES,
        sampler=MixtureGaussian,
        title="DES-mG",
        look=Look("#E69F00", "--", "s"),
        answer="K bits",
        values="K + 1",
        compared=True,
    ),
    "des-mr": Method(
        algorithm=DES,
        sampler=MixtureRademacher,
        title="DES-mR",
        look=Look("#D55E00", "-", "o"),
        answer="K bits",
        values="K + 1",
        compared=True,
    ),
    "des-c": Method(
        algorithm=DESC,
        sampler=MixtureRademacher,
        title="DES-C",
        look=Look("#AA4499", "-", "X"),
        answer="5K bits and 1 float32",
        values="K + 1",
        defaults=des_c.defaults,
    ),
    "fed-zo-gd": Method(
        algorithm=FedZOGD,
        title="Fed-ZO-GD",
        look=Look("#0072B2", "-.", "D"),
        answer="K/2 numbers",
        values="K",
        compared=True,
    ),
    "fed-zo-sgd": Method(
        algorithm=FedZOSGD,
        title="Fed-ZO-SGD",
        look=Look("#56B4E9", "--", "v"),
        answer="K/2 numbers",
        values="K",
        compared=True,
    ),
    "zo-signsgd": Method(
        algorithm=ZOSignSGD,
        title="ZO-signSGD",
        look=Look("#009E73", ":", "P"),
        answer="K/2 numbers",
        values="K",
        compared=True,
    ),
    "es-csa": Method(
        algorithm=ESCSA,
        title="ES-CSA",
        look=Look("#CC79A7", "-.", "X"),
        answer="λ numbers",
        values="λ",
        compared=True,
        defaults=es_csa.defaults,
    ),
    "feedsign": Method(
        algorithm=FeedSign,
        title="FeedSign",
        look=Look("#882255", "-.", "v"),
        answer="K bits",
        values="K",
    ),
    "zo-nsgd": Method(
        algorithm=ZONSGD,
        title="ZO-NSGD",
        look=Look("#332288", "-", "D"),
        answer="K/2 float32",
        values="K",
        defaults=zo_nsgd.defaults,
    ),
    "decomfl": Method(
        algorithm=DeComFL,
        title="DeComFL",
        look=Look("#44AA99", "--", "X"),
        answer="K/2 float32",
        values="K",
    ),
    "fedkseed": Method(
        algorithm=FedKSeed,
        title="FedKSeed",
        look=Look("#999933", ":", "^"),
        answer="K/2 float32",
        values="K",
    ),
    "fedavg-es": Method(
        algorithm=FedAvgES,
        title="FedAvg-ES",
        look=Look("#DDCC77", "-", "s"),
        answer="K bits",
        values="K",
        defaults=fedavg_es.defaults,
    ),
    "cma-es": Method(
        algorithm=CMAES,
        title="CMA-ES",
        look=Look("#117733", "-", "P"),
        answer="λ numbers",
        values="λ",
        defaults=cma_es.defaults,
    ),
}

#: The methods that the paper compares, in its order.
COMPARED = tuple(name for name, method in METHODS.items() if method.compared)


def make(name: str, settings: Mapping[str, Any], problem: ProblemSize | None = None) -> Algorithm:
    """The method of this name with its share of the settings, and defaults for the rest.

    A setting of None means the default: a fixed one, or one derived from the size of the problem.
    """
    check_name("method", name, METHODS)
    return METHODS[name].make(name, settings, problem)


def restore(settings: Mapping[str, Any], sampler: Sampler | None = None) -> Algorithm:
    """The algorithm described by ``settings()``, as a journal's header holds them.

    ``sampler`` is needed where the run had one of the user's own.
    """
    name = settings["name"]
    if name not in METHODS:
        raise ValueError(
            f"unknown method {name!r}: choose from {', '.join(METHODS)}, or import the plug-in "
            "that registers it"
        )
    values = dict(settings)
    if "sampler" in METHODS[name].settings:
        values["sampler"] = sampler or restore_sampler(settings["sampler"])
    if "box" in values:
        values["box"] = Box.restore(values["box"])
    algorithm: Algorithm = METHODS[name].algorithm(**values)
    if algorithm.settings() != settings:
        raise ValueError(f"{dict(settings)} made this run, not {algorithm.settings()}")
    return algorithm
