"""The study of workers whose data differ: its cases, and what its report concludes."""

from typing import Any

import pytest
from helpers.fake_results import STARTS, case, one_item, outcome

from desopt.report import heterogeneity as report
from desopt.studies import heterogeneity

#: Where made-up runs end, by method, form of the answer and partition: DES-C is as good as DES on
#: iid data, and closes 95 % and 80 % of a gap of 0.4.
ENDS = {
    ("des-mr", "full", "iid"): 0.2,
    ("des-mr", "full", "sorted"): 0.6,
    ("des-c", "full", "iid"): 0.2,
    ("des-c", "full", "sorted"): 0.22,
    ("des-c", "bits", "iid"): 0.21,
    ("des-c", "bits", "sorted"): 0.28,
}


def made_up(data: str, problem: str, ends: dict[Any, float] = ENDS) -> Any:
    """Two step sizes each; the second one is worse."""
    return [
        outcome(
            case(data=data, problem=problem, method=method, correction=correction,
                 partition=partition, step_size=step),
            end=end * step,
        )
        for (method, correction, partition), end in ends.items()
        for step in (1.0, 1.2)
    ]  # fmt: skip


def test_gap_closed() -> None:
    found = report.losses(one_item("sorted", made_up("a9a", "lr")).item("sorted"))
    a9a = "a9a", "lr"
    assert found.gap(a9a, "sorted", "des-c") == pytest.approx(0.95)
    assert found.gap(a9a, "sorted", "des-c bits") == pytest.approx(0.8)
    assert found.ratio(a9a, "des-c") == 1.0
    assert found.gap(a9a, "sorted", "zo-nsgd auto") is None  # no such run
    assert found.gap(a9a, "dirichlet-0.3", "des-c") is None


def test_regret() -> None:
    """DES-C ends at 0.22 with its best step size and at 0.26 with the rule."""
    auto = case(data="a9a", problem="lr", method="des-c", partition="sorted", step_size="auto")
    runs = one_item("sorted", [*made_up("a9a", "lr"), outcome(auto, end=0.26)])
    found = report.losses(runs.item("sorted"))
    assert found.regret(("a9a", "lr"), "sorted") == pytest.approx(0.04 / (STARTS["lr"] - 0.22))
    assert found.regret(("a9a", "lr"), "iid") is None


def test_no_gap_where_the_skew_costs_nothing() -> None:
    level = ENDS | {("des-mr", "full", "sorted"): 0.2}
    found = report.losses(one_item("sorted", made_up("a9a", "lr", level)).item("sorted"))
    assert found.gap(("a9a", "lr"), "sorted", "des-c") is None


def test_findings() -> None:
    better = ENDS | {("des-c", "full", "sorted"): 0.21}
    outcomes = [
        each
        for data in report.FEW
        for problem in ("lr", "lsvm")
        for each in made_up(data, problem, ENDS if data == "covtype" else better)
    ]
    found = report.findings(one_item("sorted", outcomes))
    full, bits = found.claims[:2]
    assert (full.verdict, bits.verdict) == ("holds", "does not hold")
    assert full.numbers == "8 of 8 instances"
    assert bits.numbers.startswith("0 of 8 instances; below: LR on ijcnn1 80%")
    table = found.tables[0]
    assert [row[0] for row in table.rows[::2]] == list(report.FEW)
    assert [figure.make() for figure in found.figures]


def test_an_instance_without_a_gap_is_named_and_does_not_count() -> None:
    level = ENDS | {("des-mr", "full", "sorted"): ENDS["des-mr", "full", "iid"]}
    ends = {"a9a": ENDS, "mushrooms": level, "news20": ENDS}
    outcomes = [each for data, end in ends.items() for each in made_up(data, "nsvm", end)]
    claims = report.findings(one_item("sorted", outcomes)).claims
    nonconvex = next(each for each in claims if "a9a, mushrooms, news20" in each.text)
    assert nonconvex.numbers == "2 of 2 instances; no gap: NSVM on mushrooms"
    assert nonconvex.verdict == "holds"


def test_cases() -> None:
    """DES on iid data is there for every skew, with the same rows, K, T and runs."""
    items = heterogeneity.items("full", None)
    every = {each for cases in items.values() for each in cases}
    skewed = [each for each in every if each.method == "des-mr" and each.partition != "iid"]
    assert {"sorted", "quantity", "sites"} < {each.partition for each in skewed}
    assert all(each.varied(partition="iid") in every for each in skewed)
