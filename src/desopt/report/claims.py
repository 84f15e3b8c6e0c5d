"""The paper's claims, each decided by a rule from the results alone.

Every rule states what is compared and with which tolerance. An instance is a problem on a data
set; it counts if all runs that the rule needs are present.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from desopt.contract.types import FloatArray
from desopt.objectives.losses import LOSSES
from desopt.report import names
from desopt.report.profiles import Comparison, compare, score
from desopt.report.results import Results, Series, by_settings
from desopt.report.verdicts import UNKNOWN, Claim, conclude, count, on_generated, tally, tuned
from desopt.studies.paper import MOMENTA, PROBLEMS

DES = ("des", "des-mg", "des-mr")
RIVALS = ("fed-zo-gd", "fed-zo-sgd", "zo-signsgd", "es-csa")
CONVEX = tuple(name for name in PROBLEMS if LOSSES[name].convex)

#: The paper's accuracies: of the step-size study; low and high accuracy of the others.
DELTA, LOW, HIGH = 0.1, 0.05, 0.001
#: Profiles are scored up to ten times the cost of the best, the paper's sufficient budget.
TAU = 10.0
SCORE_SLACK = 0.05
MIXTURE_SLACK = 0.01
LEAST_CORRELATION = 0.9


def judge(results: Results) -> list[Claim]:
    """All claims, in the order of the paper: on its data sets, and apart on further ones."""
    papers, further = results.divided()
    return [_with(claim(papers), claim(further)) for claim in CLAIMS]


def _with(claim: Claim, further: Claim) -> Claim:
    if further.verdict == UNKNOWN:
        return claim
    return replace(claim, further=f"{further.verdict}: {further.numbers}")


def des_is_best(results: Results) -> Claim:
    found = tuned(results, DES + RIVALS)
    best, all_three = {}, 0
    for instance, group in found.items():
        rival = min(group[m].final() for m in RIVALS)
        best[instance] = min(group[m].final() for m in DES) < rival
        all_three += max(group[m].final() for m in DES) < rival
    return conclude(
        "DES is the best performer in every instance",
        "Section 5.2",
        "Final training loss, median of the runs, each method with its best step size. Holds if "
        "in every instance at least one of the three DES methods is below all four competitors. "
        "No tolerance, because the claim is about the order.",
        len(found),
        all(best.values()),
        f"{tally(best, on_generated(found))}. "
        f"All three DES methods are ahead in {all_three} of {len(found)}.",
    )


def mixture_is_no_worse(results: Results) -> Claim:
    found = tuned(results, DES)
    good, gaps = {}, [0.0]
    for instance, group in found.items():
        plain = group["des"]
        worse = max(group[m].final() for m in DES[1:]) - plain.final()
        gaps.append(worse / max(plain.start - plain.final(), np.finfo(float).tiny))
        good[instance] = gaps[-1] <= MIXTURE_SLACK
    return conclude(
        "Mixture sampling is no worse than Gaussian sampling",
        "Section 5.2",
        "Final training loss of DES-mG and DES-mR compared with DES, medians, best step sizes. "
        "Holds if in every instance both stay within 1 % of the decrease f(x0) - f that DES "
        "reaches; the paper calls the difference negligible.",
        len(found),
        all(good.values()),
        f"{tally(good, on_generated(found))}. Largest deficit: {max(gaps):.2%} of the decrease.",
    )


def fed_zo_sgd_is_the_best_rival(results: Results) -> Claim:
    found = tuned(results, RIVALS)
    first = [min(RIVALS, key=lambda m: group[m].final()) for group in found.values()]
    wins = first.count("fed-zo-sgd")
    return conclude(
        "Fed-ZO-SGD is the best competitor",
        "Section 5.2",
        "Final training loss, median of the runs, best step sizes. Holds if Fed-ZO-SGD is the "
        "best of the four competitors in more than half of the instances: the paper makes the "
        "claim in general, not for each instance.",
        len(found),
        2 * wins > len(found),
        f"best in {wins} of {count(len(found))}; {_ranking(first, RIVALS, 'fed-zo-sgd')}",
    )


def es_csa_is_worst(results: Results) -> Claim:
    found = tuned(results, DES + RIVALS)
    last = [max(DES + RIVALS, key=lambda m: group[m].final()) for group in found.values()]
    times = last.count("es-csa")
    return conclude(
        "ES-CSA is the worst in most instances",
        "Section 5.2",
        "Final training loss, median of the runs, best step sizes, at the same budget rounded to "
        "whole generations. Holds if ES-CSA has the highest loss of the seven methods in more "
        "than half of the instances.",
        len(found),
        2 * times > len(found),
        f"worst in {times} of {count(len(found))}; {_ranking(last, DES + RIVALS, 'es-csa')}",
    )


def _ranking(found: Sequence[str], methods: Sequence[str], without: str) -> str:
    others = [f"{names.method(m)} {found.count(m)}" for m in methods if m != without and m in found]
    return f"otherwise {', '.join(others)}" if others else "no other method in any instance"


def des_is_insensitive_to_the_step(results: Results) -> Claim:
    found = by_settings(results.item("alpha") or results.item("curves"), "method", "step_size")
    grid = sorted({step for group in found.values() for _, step in group})
    spreads, made = {}, set()
    for instance, group in found.items():
        runs = [group[key] for step in grid if (key := ("des", step)) in group]
        if instance[0] in CONVEX and len(runs) == len(grid) > 1:
            ends = [s.final() for s in runs]
            gain = max(runs[0].start - min(ends), np.finfo(float).tiny)
            spreads[instance] = (max(ends) - min(ends)) / gain
            made |= {instance} if runs[0].generated else set()
    good = {i: spread <= DELTA for i, spread in spreads.items()}
    return conclude(
        "DES is insensitive to the initial step size on LR and LSVM",
        "Section 5.3",
        "DES with Gaussian sampling on the two convex problems: final training loss, median of "
        "the runs, for every step size. Holds if in every instance the worst step size reaches "
        "90 % of the decrease of the best one, which is the accuracy (delta = 0.1) of the paper's "
        "comparison of step sizes.",
        len(spreads),
        all(good.values()),
        f"{tally(good, made)}. Largest spread: {max(spreads.values(), default=0):.1%} "
        f"of the decrease, over step sizes {', '.join(f'{step:g}' for step in grid)}.",
    )


def fed_zo_gd_fails_at_a_small_step(results: Results) -> Claim:
    profile = compare(step_study(results), ("method", "step_size"), DELTA)
    here = ("fed-zo-gd", 0.1) in profile.solvers
    solved = profile.solved("fed-zo-gd", 0.1) if here else 0
    total = len(profile.instances) if here else 0
    return conclude(
        "Fed-ZO-GD with step size 0.1 solves no instance",
        "Section 5.3",
        "Performance profile at delta = 0.1 over all methods and step sizes of Figure 3: an "
        "instance is solved when f(x0) - f >= 0.9 (f(x0) - f*), where f* is the best value of "
        "all. Holds if Fed-ZO-GD with alpha = 0.1 solves none.",
        total,
        solved == 0,
        f"solves {solved} of {count(total)}",
    )


def step_study(results: Results) -> list[Series]:
    """The series of Figure 3: DES with Gaussian sampling and the competitors."""
    return [s for s in results.item("alpha") if s.case.method not in DES[1:]]


def _momentum(results: Results, delta: float) -> tuple[int, dict[float, float], Comparison]:
    """The number of complete instances, the score of every momentum, and the profiles."""
    series = [s for s in results.item("momentum") if s.case.momentum in MOMENTA]
    profile = compare(series, ("momentum",), delta)
    complete = len(profile.instances) if len(profile.solvers) == len(MOMENTA) else 0
    return complete, {b: score(profile.of(b), TAU) for (b,) in sorted(profile.solvers)}, profile


def _scores(scores: Mapping[float, float], profile: Comparison, delta: float) -> str:
    each = (f"{beta:g}: {value:.2f} ({profile.solved(beta)})" for beta, value in scores.items())
    return f"delta = {delta:g}, score (solved of {len(profile.instances)}) by beta: " + ", ".join(
        each
    )


_SCORED = (
    "DES-mR, step size 1, all instances. The score of a profile is the mean of rho(tau) over "
    "log tau, tau from 1 to 10. Tolerance: 0.05, one instance in twenty. "
)


def momentum_is_useless_at_low_accuracy(results: Results) -> Claim:
    total, scores, profile = _momentum(results, LOW)
    return conclude(
        "Momentum is useless at low accuracy",
        "Section 5.4",
        _SCORED + "Holds if at delta = 0.05 no beta > 0 scores higher than beta = 0.",
        total,
        max(scores.values(), default=0) <= scores.get(0.0, 0) + SCORE_SLACK,
        _scores(scores, profile, LOW),
    )


def momentum_is_useful_at_high_accuracy(results: Results) -> Claim:
    total, scores, profile = _momentum(results, HIGH)
    best = max((scores.get(beta, 0) for beta in MOMENTA[1:4]), default=0)
    return conclude(
        "Momentum is useful at high accuracy",
        "Section 5.4",
        _SCORED + "Holds if at delta = 0.001 one of beta = 0.2, 0.4 and 0.6, the range that the "
        "paper recommends, scores higher than beta = 0.",
        total,
        best > scores.get(0.0, 0) + SCORE_SLACK,
        _scores(scores, profile, HIGH),
    )


def large_momentum_is_harmful(results: Results) -> Claim:
    both = [(_momentum(results, delta), delta) for delta in (LOW, HIGH)]
    return conclude(
        "Momentum 0.8 is harmful",
        "Section 5.4",
        _SCORED + "Holds if beta = 0.8 has the lowest score of the five, clearly below the best, "
        "both at delta = 0.05 and at delta = 0.001.",
        min(total for (total, _, _), _ in both),
        all(_is_harmful(scores) for (_, scores, _), _ in both),
        ". ".join(_scores(scores, profile, delta) for (_, scores, profile), delta in both),
    )


def _is_harmful(scores: Mapping[float, float]) -> bool:
    last = scores.get(MOMENTA[-1], 1.0)
    return last <= min(scores.values(), default=0) and last < max(scores.values()) - SCORE_SLACK


def larger_batches_are_better_at_high_accuracy(results: Results) -> Claim:
    profile = compare(results.item("batch"), ("batch_size",), HIGH)
    solved = {b: profile.solved(b) for (b,) in sorted(profile.solvers)}
    counts = list(solved.values())
    total = len(profile.instances) if len(counts) > 1 else 0
    slack = total // 20
    steady = all(after >= before - slack for before, after in itertools.pairwise(counts))
    return conclude(
        "Larger minibatches are better at high accuracy",
        "Section 5.5",
        "DES-mR: the number of instances solved at delta = 0.001 within the budget. Holds if it "
        "does not decrease as b grows (tolerance: one instance in twenty) and if the largest b "
        "solves more than the smallest.",
        total,
        steady and max(counts, default=0) > min(counts, default=0),
        f"solved of {total} by b: " + ", ".join(f"{b}: {count}" for b, count in solved.items()),
    )


def rank_correlation(one: FloatArray, other: FloatArray) -> float:
    """Spearman's rank correlation; equal values share their mean rank."""
    ranks = []
    for values in (one, other):
        _, place, count = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2)[place])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def errors_go_together(results: Results) -> Claim:
    found = tuned(results, DES)
    correlations, rise = {}, 0.0
    for instance, group in found.items():
        train, test = (
            np.concatenate([group[m].median(f"{part}_error") for m in DES])
            for part in ("train", "test")
        )
        # Constant errors agree, but their correlation is undefined.
        constant = np.ptp(train) == 0 or np.ptp(test) == 0
        correlations[instance] = 1.0 if constant else rank_correlation(train, test)
        tests = [group[m].median("test_error") for m in DES]
        rise = max(rise, *(float(curve[-1] - curve.min()) for curve in tests))
    good = {i: value >= LEAST_CORRELATION for i, value in correlations.items()}
    return conclude(
        "The test error follows the training error",
        "Section 5.2 and the supplement",
        "The three DES methods with their best step sizes: rank correlation (Spearman) of "
        "training error and test error over all points of their median curves. Holds if it is "
        "at least 0.9 in every instance, which allows for fluctuations on the final plateau.",
        len(found),
        all(good.values()),
        f"{tally(good, on_generated(found))}. Lowest correlation: "
        f"{min(correlations.values(), default=0):.3f}; largest rise of a test error above its "
        f"minimum: {rise:.4f}.",
    )


CLAIMS: tuple[Callable[[Results], Claim], ...] = (
    des_is_best,
    mixture_is_no_worse,
    fed_zo_sgd_is_the_best_rival,
    es_csa_is_worst,
    des_is_insensitive_to_the_step,
    fed_zo_gd_fails_at_a_small_step,
    momentum_is_useless_at_low_accuracy,
    momentum_is_useful_at_high_accuracy,
    large_momentum_is_harmful,
    larger_batches_are_better_at_high_accuracy,
    errors_go_together,
)
