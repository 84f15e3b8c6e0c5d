"""The local searches of all methods: a worker's round as an object that asks for values.

==============  ==============================  ====================  ==========================
search          points                          answer                methods
==============  ==============================  ====================  ==========================
OnePlusOne      x, then v + alpha_k u_k         K accept bits         es, des, des-mg, des-mr
TwoParts        those of two OnePlusOne         K accept bits         a round of step_size="auto"
Tilted          those of OnePlusOne             bits and changes      des-c
Probed          a TwoPoint's, then a Tilted's   those of Tilted       des-c, step_size="auto"
TwoPoint        v + mu u_k and v - mu u_k       K' slopes g_k         fed-zo-*, zo-signsgd,
                                                                      zo-nsgd, feedsign,
                                                                      decomfl, fedkseed
Population      x + sigma z_j                   lambda sums           es-csa, cma-es
Generations     v + sigma_g z_j                 a bit per member      fedavg-es
==============  ==============================  ====================  ==========================

In a box, points and moves are projected onto it, and members of a population mirrored at its
bounds (projected, it would lose the spread that its adaptation needs). Where there are
constraints, points are ordered by (violation, value); the value of one that violates them is not
needed.

They are driven by ``ask`` and ``tell`` (see ``contract.types.LocalSearch``). An objective with
compiled code for the whole search hands the outcome to ``finish`` instead.
"""

from __future__ import annotations

from desopt.methods.searches.base import Search, affordable
from desopt.methods.searches.generations import Generations
from desopt.methods.searches.one_plus_one import OnePlusOne, TwoParts
from desopt.methods.searches.population import Population, ranking
from desopt.methods.searches.tilted import Probed, Tilt, Tilted
from desopt.methods.searches.two_point import Probe, TwoPoint

__all__ = [
    "Generations",
    "OnePlusOne",
    "Population",
    "Probe",
    "Probed",
    "Search",
    "Tilt",
    "Tilted",
    "TwoParts",
    "TwoPoint",
    "affordable",
    "ranking",
]
