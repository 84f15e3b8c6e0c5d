"""Every claim with results that confirm it, that refute it, and that are too few."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import pytest
from helpers.fake_results import DES, ENDS, curves, outcome, sweep

from desopt.report import claims
from desopt.report.results import Results, read_results, summarise
from desopt.report.verdicts import FAILS, HOLDS, UNKNOWN, Claim
from desopt.studies.database import FILE
from desopt.studies.outcomes import Outcome

EVEN = dict.fromkeys((0.0, 0.2, 0.4, 0.6, 0.8), 0.0)
BATCHES = {100: 3.0, 500: 2.0, 1000: 1.0, 1500: 0.0, 2000: 0.0}


def results(**items: Iterable[Outcome]) -> Results:
    found = {name: list(outcomes) for name, outcomes in items.items()}
    every = [o for outcomes in found.values() for o in outcomes]
    return Results({name: summarise(outcomes) for name, outcomes in found.items()}, every, (), {})


def with_ends(**ends: float) -> Results:
    return results(curves=curves(ends=ENDS | {k.replace("_", "-"): v for k, v in ends.items()}))


def steps(fed_zo_gd: float) -> Results:
    return results(alpha=curves(ends=ENDS | {"fed-zo-gd": fed_zo_gd}))


def momentum(**beta: float) -> Results:
    """``b04=1`` lets beta = 0.4 end a hundredth of the start higher."""
    return results(momentum=sweep("momentum", EVEN | {int(k[1:]) / 10: v for k, v in beta.items()}))


CASES: list[tuple[Callable[[Results], Claim], Results, Results]] = [
    (claims.des_is_best, with_ends(), with_ends(es_csa=-1)),
    (claims.mixture_is_no_worse, with_ends(des_mg=0.7, des_mr=-1), with_ends(des_mg=0.9, des_mr=0)),
    (claims.fed_zo_sgd_is_the_best_rival, with_ends(), with_ends(fed_zo_gd=2.5)),
    (claims.es_csa_is_worst, with_ends(), with_ends(es_csa=4.5)),
    (
        claims.des_is_insensitive_to_the_step,
        results(alpha=curves(("ijcnn1", "covtype"), spread=7.5)),
        results(alpha=curves(("ijcnn1", "covtype"), spread=8.5)),
    ),
    (claims.fed_zo_gd_fails_at_a_small_step, steps(20), steps(4)),
    (claims.momentum_is_useless_at_low_accuracy, momentum(b02=1), momentum(b00=10)),
    (claims.momentum_is_useful_at_high_accuracy, momentum(b00=1, b02=1), momentum()),
    (claims.large_momentum_is_harmful, momentum(b08=10), momentum(b08=1)),
    (
        claims.larger_batches_are_better_at_high_accuracy,
        results(batch=sweep("batch_size", BATCHES)),
        results(batch=sweep("batch_size", BATCHES | {100: 0.0})),
    ),
    (claims.errors_go_together, with_ends(), results(curves=curves(overfit=0.5))),
]


def test_all_claims_are_tried_in_the_order_of_the_report() -> None:
    assert [claim for claim, _, _ in CASES] == list(claims.CLAIMS)


@pytest.mark.parametrize(
    ("claim", "good", "bad"), CASES, ids=lambda value: getattr(value, "__name__", "")
)
def test_verdicts(claim: Callable[[Results], Claim], good: Results, bad: Results) -> None:
    assert claim(good).verdict == HOLDS, claim(good).numbers
    assert claim(bad).verdict == FAILS, claim(bad).numbers
    assert claim(results()).verdict == UNKNOWN
    one = {
        name: [s for s in series if s.case.problem == "lr"] for name, series in good.items.items()
    }
    found = claim(Results(one, good.outcomes, (), {}))
    assert found.verdict == UNKNOWN
    assert "3 are needed" in found.numbers


def test_an_exception_is_named_and_generated_data_are_marked() -> None:
    mixed = curves(data=("ijcnn1", "susy-like"))
    worse = [
        outcome(o.case, end=0.05)
        if (o.case.data, o.case.problem, o.case.method) == ("susy-like", "lsvm", "es-csa")
        else o
        for o in mixed
    ]
    found = claims.des_is_best(results(curves=worse))
    assert found.verdict == FAILS
    assert found.numbers.startswith(
        "5 of 6 instances (3 on generated data); exceptions: LSVM on SUSY-like (generated)."
    )


def test_many_exceptions_are_cut_short() -> None:
    data = ("ijcnn1", "covtype", "mnist", "news20")
    found = claims.des_is_best(results(curves=curves(data, ENDS | {"es-csa": -1})))
    assert "0 of 12 instances; exceptions: LR on ijcnn1" in found.numbers
    assert "and 4 more" in found.numbers


def test_an_unfinished_grid_of_step_sizes_is_left_out() -> None:
    whole = curves(data=("ijcnn1", "covtype"))
    part = [o for o in whole if (o.case.data, o.case.step_size) != ("covtype", 10.0)]
    assert "3 of 3 instances" in claims.des_is_best(results(curves=part)).numbers
    failed = [
        outcome(o.case, status="failed", curve={}) if o.case.step_size == 10 else o for o in whole
    ]
    # A step size at which everything failed is not part of the grid that is left.
    assert "6 of 6 instances" in claims.des_is_best(results(curves=failed)).numbers


def test_judging_numbers_are_those_of_the_results() -> None:
    found = claims.large_momentum_is_harmful(momentum(b08=10))
    assert "delta = 0.05, score (solved of 3) by beta: 0: 1.00 (3)" in found.numbers
    assert "0.8: 0.00 (0)" in found.numbers
    batches = claims.larger_batches_are_better_at_high_accuracy(CASES[-2][1])
    assert batches.numbers == "solved of 3 by b: 100: 0, 500: 0, 1000: 0, 1500: 3, 2000: 3"
    steps = claims.des_is_insensitive_to_the_step(CASES[4][1])
    assert "4 of 4 instances. Largest spread: 9.4% of the decrease" in steps.numbers  # no NSVM
    rivals = claims.fed_zo_sgd_is_the_best_rival(with_ends(fed_zo_gd=2.5))
    assert rivals.numbers == "best in 0 of 3 instances; otherwise Fed-ZO-GD 3"


def test_further_sets_are_counted_apart() -> None:
    """A set outside the paper has no say in a verdict, but the reader sees what happens there."""
    good, bad = curves(("ijcnn1", "susy-30k")), curves(("heart",), ENDS | {"zo-signsgd": -1})
    claim = claims.judge(results(curves=[*good, *bad]))[0]
    assert (claim.verdict, claim.numbers[:18]) == (HOLDS, "6 of 6 instances. ")
    assert claim.further.startswith("does not hold: 0 of 3 instances; exceptions: LR on heart")
    # A twin beside the real data is a further set, too.
    claim = claims.judge(results(curves=[*good, *curves(("susy-like",))]))[0]
    assert claim.further.startswith("holds: 3 of 3 instances (3 on generated data)")
    assert claims.judge(results(curves=good))[0].further == ""


def test_every_claim_says_how_it_is_judged() -> None:
    found = claims.judge(results(curves=curves(ends={m: ENDS[m] for m in DES})))
    assert len(found) == 11
    for claim in found:
        assert "Holds if" in claim.definition
        assert claim.source.startswith("Section 5.")


PAPER = Path(__file__).parents[2] / "results" / "paper"


@pytest.mark.skipif(not (PAPER / FILE).exists(), reason="needs results/paper")
def test_the_published_verdicts_are_those_of_the_published_results() -> None:
    published = json.loads((PAPER / "report" / "claims.json").read_text(encoding="utf-8"))
    assert published == [asdict(claim) for claim in claims.judge(read_results(PAPER))]
