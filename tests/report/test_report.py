"""The report: what is read, the figures, the tables, the page, the command."""

import json
import math
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command import call
from helpers.fake_results import DES, ENDS, RIVALS, case, curves, one_item, outcome, sweep, write
from scipy.stats import spearmanr

import desopt
from desopt.data.catalogue import CATALOGUE
from desopt.report import claims, drawing, figures, names, page, page_data, style, tables, verdicts
from desopt.report import results as medians
from desopt.report import write as writing
from desopt.report.findings import Findings, find
from desopt.report.results import Results, read_results, summarise
from desopt.studies.store import Store

ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
SETS = ("ijcnn1", "rcv1-like", "news20")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three data sets, all items, and a case that failed with markup in its message."""
    every = curves(SETS, runs=2, luck=0.03)
    broken = outcome(case(method="des", run=9), status="failed", message="</script><b>", curve={})
    betas = dict.fromkeys((0.0, 0.2, 0.4, 0.6, 0.8), 1.0) | {0.4: 0.0}
    batches = {100: 2.0, 500: 1.0, 1000: 1.0, 1500: 0.0, 2000: 0.0}
    items = {
        "curves": [*every, broken], "alpha": every,
        "momentum": sweep("momentum", betas), "batch": sweep("batch_size", batches),
    }  # fmt: skip
    return write(tmp_path_factory.mktemp("folder"), items)


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return read_results(folder)


# What is read.


def test_reading_gives_back_what_was_written(folder: Path, results: Results) -> None:
    assert list(results.items) == ["curves", "alpha", "momentum", "batch"]
    assert len(results.item("curves")) == 3 * 3 * 7 * 3
    with Store.open(folder) as store:
        runs = [o for o in store.read("curves") if o.case.label.startswith("news20 nsvm es-csa")]
    found = next(s for s in results.item("curves") if s.case == runs[0].case)
    assert found.runs == 2
    middle = np.median([r.curve["train_loss"] for r in runs[:2]], axis=0)
    np.testing.assert_allclose(found.median("train_loss"), middle)
    np.testing.assert_allclose(found.x["rounds"], runs[0].curve["paper_round"])
    assert found.x["rounds"][-1] == 39.0  # 13 generations of 3 rounds each
    np.testing.assert_allclose(found.x["bytes"], 2130 * runs[0].curve["round"])


def test_quartiles_count_a_run_without_a_value_as_the_worst() -> None:
    rows = np.array([[1.0, 1.0], [2.0, math.nan], [3.0, math.nan], [4.0, 4.0], [5.0, math.nan]])
    low, middle, high = medians.quartiles(rows)
    assert (low[0], middle[0], high[0]) == (2, 3, 4)
    assert (low[1], middle[1], high[1]) == (4, math.inf, math.inf)
    plain = np.random.default_rng(0).standard_normal((8, 3))
    np.testing.assert_allclose(
        medians.quartiles(plain), np.quantile(plain, (0.25, 0.5, 0.75), axis=0)
    )


def test_runs_of_different_length_share_their_common_points() -> None:
    whole, short = (outcome(case(run=run), end=0.2) for run in (0, 1))
    cut = {name: column[:11] for name, column in short.curve.items()}
    (found,) = summarise([whole, outcome(short.case, curve=cut)])
    assert found.x["rounds"].tolist() == short.curve["paper_round"][:11].tolist()


def test_the_best_step_is_chosen_by_the_final_training_loss() -> None:
    best = medians.best_steps(summarise(curves(runs=2)))
    assert len(best) == 3 * 7
    assert {s.case.step_size for s in best} == {1.0}
    lost = [
        outcome(o.case, curve={**o.curve, "train_loss": np.full(21, math.nan)})
        if o.case.step_size == 1.0 and o.case.method == "des"
        else o
        for o in curves(ends={"des": 0.0})
    ]
    assert {s.case.step_size for s in medians.best_steps(summarise(lost))} == {0.1}


def test_what_varies_is_found_and_what_follows_from_the_data_is_not() -> None:
    own = [
        outcome(case(data=d, method=m, workers=w, iterations=k, mixture=l))
        for d, k in (("a", 100), ("b", 500))
        for m, l in (("des", 1), ("des-mr", 8))
        for w in (5, 10)
    ]
    assert medians.varying(summarise(own)) == ("method", "workers")
    assert medians.varying(summarise([outcome(case())])) == ()


# Figures.


def test_the_papers_arrangement(results: Results) -> None:
    plans = [plan.name for plan in figures.planned(results)]
    assert plans == [
        *(f"{a}-{b}" for b, *rows in (
            ("training-loss", "figure-1", "figure-2", "further-1"),
            ("training-error", "figure-1", "figure-2", "further-1"),
            ("test-loss", "supplement-1", "supplement-2", "further-1"),
            ("test-error", "supplement-1", "supplement-2", "further-1"),
        ) for a in rows),
        "figure-3-profile-step-size", "figure-4-step-size-ijcnn1",
        "figure-5-profile-momentum", "figure-6-profile-batch", "further-profile-step-size",
    ]  # fmt: skip
    rows = figures.data_rows(["covtype", "susy-like", "rcv1", "rcv1-like", "ijcnn1", "a9a"])
    assert rows == [["rcv1", "susy-like"], ["ijcnn1", "covtype"], ["rcv1-like", "a9a"]]


def test_a_figure_takes_the_papers_data_sets_or_their_twins() -> None:
    slots = [name for row in names.ROWS for name in row]
    assert set(slots) == {name for name, known in CATALOGUE.items() if known.in_paper}
    for data in ("SUSY", "susy-like"):
        every = one_item("curves", curves([data]))
        both = replace(every, items={**every.items, "alpha": every.item("curves")})
        plans = {plan.name: plan for plan in figures.planned(both)}
        assert f"figure-4-step-size-{data}" in plans
        titles = [axes.get_title() for axes in plans["figure-1-training-loss"].make().axes]
        assert titles == [
            f"{p}, {names.data(data, data != 'SUSY')}" for p in ("LR", "NSVM", "LSVM")
        ]
        assert not any(name.startswith("further") for name in plans)


def test_a_figure_is_the_same_file_twice(tmp_path: Path) -> None:
    plan = figures.planned(one_item("mine", [outcome(case())]))[0]
    made = [figures.save(plan, tmp_path / name, ["svg", "pdf"]) for name in "ab"]
    for first, second in zip(*made, strict=True):
        assert first.read_bytes() == second.read_bytes()
    svg, pdf = made[0]
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert b"CreationDate" not in pdf.read_bytes()
    assert b"/FontFile2" in pdf.read_bytes()  # embedded


def test_panels_are_readable_in_grey_and_mark_generated_data(results: Results) -> None:
    panels = [axes for axes in figures.planned(results)[0].make().axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [
        f"{p}, rcv1-like (generated)" for p in ("LR", "NSVM", "LSVM")
    ]
    lines = panels[0].get_lines()
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == 7
    assert len(panels[0].collections) == 7  # the bands
    assert panels[0].get_yscale() == "log"


def texts(legend: Any) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


def test_the_curves_of_the_paper_tell_their_step_sizes() -> None:
    figure = figures.planned(one_item("curves", curves(["SUSY"])))[0].make()
    assert texts(figure.legends[0])[-1] == f"ES-CSA, {ALPHA} = 1"
    assert figure.legends[0].get_window_extent().width < figure.bbox.width
    assert figure.axes[0].get_legend() is None

    mixed = one_item("curves", curves(["SUSY"], luck=0.03))  # another one in every panel
    figure = figures.planned(mixed)[0].make()
    assert texts(figure.legends[0])[-1] == "ES-CSA"
    best = {(s.case.problem, s.case.method): s for s in medians.best_steps(mixed.item("curves"))}
    for problem, axes in zip(("lr", "nsvm", "lsvm"), figure.axes, strict=True):
        steps = [f"{best[problem, m].case.step_size:g}" for m in (*DES, *RIVALS)]
        assert texts(axes.get_legend()) == [f"{ALPHA} =", *steps]


def test_a_profile_is_drawn_as_computed(results: Results) -> None:
    plan = next(p for p in figures.planned(results) if p.name == "figure-5-profile-momentum")
    low, high = plan.make().axes
    assert [axes.get_title() for axes in (low, high)] == [
        rf"$\delta = {delta}$, 3 instances, {ALPHA} = 1" for delta in (0.05, 0.001)
    ]
    assert len(low.get_lines()) == 5
    (best,) = high.get_lines()  # the others solve nothing at this accuracy
    assert np.all(best.get_ydata() == np.ones(2))
    assert "no instance solved" in high.get_xlabel()


def test_what_diverges_does_not_spoil_the_panel(tmp_path: Path) -> None:
    wild = outcome(case(method="des-mr"))
    wild.curve["train_loss"][5:] = [math.nan, math.inf, *(10.0 ** np.arange(14))]
    plan = figures.planned(one_item("mine", [outcome(case()), wild]))[0]
    figure = plan.make()
    assert figure.axes[0].get_ylim()[1] < 1
    drawing.save(figure, tmp_path, "wild", "", ["svg"])


# The page.


def test_numbers_have_five_digits() -> None:
    values = np.array([0.693147, 4e6, math.inf, math.nan, 1.829999e-7, 0.0])
    assert page_data.numbers(values) == (0.69315, 4_000_000, None, None, 1.83e-7, 0)
    assert json.dumps(page_data.numbers(np.array([0.0, 1e6, 2.5]))) == "[0, 1000000, 2.5]"


def test_the_page_has_the_curves_as_plain_numbers(results: Results) -> None:
    data = json.loads(page._script(page_data.page_data(results.items)))
    series = results.item("curves")[0]
    found = data["series"][0]
    assert (found["problem"], found["data"], found["step"]) == ("lr", "ijcnn1", 0.1)
    np.testing.assert_allclose(data["columns"][found["x"]["rounds"]], series.x["rounds"])
    for metric, band in found["y"].items():
        np.testing.assert_allclose(band, series.y[metric], rtol=5.1e-5)


def test_items_share_their_series(results: Results) -> None:
    packed = page_data.page_data(results.items)
    distinct = {s.case.id for series in results.items.values() for s in series}
    assert len(packed["series"]) == len(distinct)
    members = {item["name"]: [m[0] for m in item["members"]] for item in packed["items"]}
    assert members["Methods"] == members["Step size"]
    best = [m for m in packed["items"][0]["members"] if m[2]]
    assert len(best) == 3 * 3 * 7


def test_the_page_holds_the_numbers_and_lets_nothing_out(results: Results) -> None:
    text = page.render(results, find(results), ["svg"])
    assert text == page.render(results, find(results), ["svg"])
    assert text.count("</script>") == 2  # what a message says does not end ours
    assert "&lt;/script&gt;&lt;b&gt;" in text
    assert "{{" not in text
    assert not re.search(r"(src|href)=\"?(https?:)?//", text)
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])
    assert data["data"]["rcv1-like"] == "rcv1-like (generated)"
    for claim in claims.judge(results):
        assert claim.text in text
        assert claim.verdict in text
    assert "desopt suite paper --scale small" in text
    assert 'alt="Training loss on rcv1-like' in text  # without scripts


def test_four_thousand_cases_make_a_page_below_two_megabytes() -> None:
    big = one_item("curves", curves(("ijcnn1", "covtype"), luck=0.03))
    noisy = page.render(big, Findings(), [])
    per_series = len(noisy) / len(big.item("curves"))
    assert per_series * 4000 / 8 < 1.5e6  # 4,000 cases are 500 series of 8 runs


def test_script_safe_json() -> None:
    text = page._script({"a": "</script><!--\u2028"})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"a": "</script><!--\u2028"}


def test_a_single_case_and_an_own_study(tmp_path: Path) -> None:
    single = write(tmp_path / "one", {"mine": [outcome(case())]})
    written = writing.write(read_results(single), tmp_path / "a", ["html", "svg"], lambda *_: None)
    assert [path.name for path in written.paths] == [
        "index.html", "mine-training-loss.svg", "mine-test-error.svg",
        "mine-training-loss-by-bytes.svg",
    ]  # fmt: skip
    assert not written.claims

    own = [outcome(case(workers=w, run=r), end=0.2 + w / 100) for w in (2, 5) for r in (0, 1)]
    packed = page_data.page_data(one_item("by/size", own).items)
    assert [v["label"] for v in packed["items"][0]["variants"]] == ["M = 2", "M = 5"]
    plans = figures.planned(one_item("by/size", own))
    assert [plan.name for plan in plans] == [
        "by-size-training-loss", "by-size-test-error", "by-size-training-loss-by-bytes",
    ]  # fmt: skip


def test_an_own_study_chooses_its_figures_and_its_legends_name_the_step_size() -> None:
    own = [
        outcome(case(data=d, method=m, step_size=a), end=0.2 + abs(a - best) / 100)
        for d, best in (("a", 1.0), ("b", 10.0))
        for m, steps in (("des", (1.0, 10.0)), ("es", (10.0,)))
        for a in steps
    ]
    asked = {"figures": "test_loss:rounds train_error:upload"}
    plans = figures.planned(replace(one_item("mine", own), about=asked))
    assert [plan.name for plan in plans] == ["mine-test-loss", "mine-training-error-by-upload"]
    loss, upload = (plan.make() for plan in plans)
    assert texts(loss.legends[0]) == ["ES", "DES"]  # DES has its best step size in each panel:
    assert [texts(axes.get_legend()) for axes in loss.axes] == [
        [f"{ALPHA} =", "10", "1"],
        [f"{ALPHA} =", "10", "10"],
    ]
    assert (loss.axes[-1].get_xlabel(), loss.axes[-1].get_xscale()) == ("rounds", "linear")
    assert upload.axes[-1].get_xlabel() == "bytes sent by the workers"
    assert np.asarray(upload.axes[-1].get_lines()[0].get_xdata())[-1] == 130 * 40
    with pytest.raises(ValueError, match="did you mean 'test_loss'"):
        figures.planned(replace(one_item("mine", own), about={"figures": "test_los"}))


def test_an_own_study_has_no_figure_of_errors_where_nothing_is_classified() -> None:
    blank = {"train_error": np.full(21, math.nan), "test_error": np.full(21, math.nan)}
    own = outcome(case())
    results = one_item("mine", [replace(own, curve={**own.curve, **blank})])
    assert [p.name for p in figures.planned(results)] == [
        "mine-training-loss", "mine-training-loss-by-bytes",
    ]  # fmt: skip
    assert tables.tables(results)[1].rows[0][3] == tables.MISSING


def test_an_own_study_ends_in_a_table() -> None:
    own = [
        outcome(case(data=d, method=m, step_size=a), end=0.2 + e / 100)
        for d in ("a", "b") for m, e in (("des", 1.0), ("des-mr", 0.0)) for a in (0.1, 1.0)
    ]  # fmt: skip
    _, table = tables.tables(one_item("mine", own))
    assert [row[0] for row in table.rows] == [
        "LR on a: DES", "LR on a: DES-mR", "LR on b: DES", "LR on b: DES-mR",
    ]  # fmt: skip
    assert table.bold == {(1, 2), (3, 2)}
    row = dict(zip(table.header, table.rows[1], strict=True))
    assert (row["training loss"], row["kB up"], row["kB"]) == ("0.2012", "5.2", "85.2")
    assert float(row["test error, %"]) == pytest.approx(100 * own[2].curve["test_error"][-1])


def test_a_rule_for_the_step_size_is_compared_with_the_best_fixed_one() -> None:
    ends: dict[float | str, float] = {0.1: 0.4, 1.0: 0.2, "auto": 0.3}
    own = [
        outcome(case(step_size=a, method=m), end=e) for a, e in ends.items() for m in ("des", "es")
    ]
    results = one_item("mine", own)
    best = {(s.case.method, s.case.step_size) for s in medians.best_steps(results.item("mine"))}
    assert best == {("des", 1.0), ("des", "auto"), ("es", 1.0), ("es", "auto")}
    (packed,) = page_data.page_data(results.items)["items"]
    labels = [variant["label"] for variant in packed["variants"]]
    assert labels == ["ES, α = auto", "ES", "DES, α = auto", "DES"]  # noqa: RUF001
    figure = figures.planned(results)[0].make()
    assert len(figure.axes[0].get_lines()) == 4
    told = [text.split()[-1] for text in texts(figure.legends[0])]
    assert told == ["auto", "1", "auto", "1"]


def test_labels_name_what_tells_the_variants_of_a_method_apart() -> None:
    own = [outcome(case(method=m)) for m in ("des-mr", "des-c")]
    own.append(outcome(case(method="des-c", correction="bits")))
    (packed,) = page_data.page_data(one_item("mine", own).items)["items"]
    labels = [variant["label"] for variant in packed["variants"]]
    assert labels == ["DES-mR", "DES-C, correction = bits", "DES-C, correction = full"]
    colours = [variant["colour"] for variant in packed["variants"]]
    assert colours == [desopt.METHODS[name].look.colour for name in ("des-mr", "des-c", "des-c")]
    assert len({variant["dash"] for variant in packed["variants"][1:]}) == 2


def test_the_title_is_the_name_of_an_own_study() -> None:
    own = one_item("mine", [outcome(case())])
    named = replace(own, about={"study": "<first> study"})
    titles = [
        re.search("<title>(.*)</title>", page.render(results, find(results), []))
        for results in (own, named, replace(named, items={"curves": own.item("mine")}))
    ]
    found = [title[1] for title in titles if title]
    assert found == [page.TITLE, "&lt;first&gt; study: results", page.TITLE]


def test_a_page_without_curves_shows_its_figures(tmp_path: Path) -> None:
    results = read_results(write(tmp_path / "one", {"mine": [outcome(case())]}))
    found = find(results)
    for shown, illustrated in (None, False), ({}, True):
        text = page.render(results, replace(found, shown=shown, illustrated=illustrated), ["svg"])
        assert ('id="curves"' in text, '<a href="#curves">' in text) == (not illustrated,) * 2
        assert ('<li><img src="figures/' in text) == illustrated


def test_a_report_replaces_the_one_before(tmp_path: Path) -> None:
    out = tmp_path / "report"
    papers = {"curves": curves(SETS, ends={"des": 0.0})}
    mine = {"mine": [outcome(case())]}
    for folder, items, formats in (("a", papers, "html,tex"), ("b", mine, "html,tex,svg")):
        results = read_results(write(tmp_path / folder, items))
        writing.write(results, out, formats.split(","), lambda *_: None)
        (out / "notes.tex").write_text("of my own")
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert found == {
        ".written", "index.html", "notes.tex", "table-data-sets.tex", "table-mine.tex",
        "figures/mine-training-loss.svg", "figures/mine-test-error.svg",
        "figures/mine-training-loss-by-bytes.svg",
    }  # fmt: skip
    (out / ".written").write_text("../a/results.sqlite\n/etc/x.tex\nnotes.tex\n")
    writing.write(results, out, ["html", "tex"], lambda *_: None)
    assert (tmp_path / "a" / "results.sqlite").exists()
    assert (out / "figures" / "mine-training-loss.svg").exists()  # not asked for, not touched


# Tables and claims.


def test_tables(results: Results, tmp_path: Path) -> None:
    sets, losses, errors, further, _ = tables.tables(results)
    assert [row[0] for row in sets.rows] == ["rcv1-like (generated)", "ijcnn1", "news20"]
    assert sets.rows[1][1:6] == ["22", "50,000", "40,000", "10,000", "59.00%"]
    assert losses.header[1:4] == ("DES", "DES-mG", "DES-mR")
    assert losses.rows[0][0] == "rcv1-like (generated), LR"
    best = {s.case.method: s for s in medians.best_steps(results.item("curves"))
            if s.instance == ("lr", "rcv1-like")}  # fmt: skip
    assert losses.rows[0][1] == f"{best['des'].final():#.4g} (1)"
    assert len(losses.bold) == len(losses.rows) == 6
    assert [row[0] for row in further.rows] == [f"news20, {p}" for p in ("LR", "NSVM", "LSVM")]
    assert (further.name, further.header) == ("table-further-train-loss", losses.header)
    assert errors.rows[0][1] == f"{100 * best['des'].final('test_error'):.2f} (1)"
    text = tables.write_latex(losses, tmp_path).read_text()
    assert text.count(r"\\") == 7
    assert r"\textbf{" in text
    assert tables._latex("a_b & 50%") == r"a\_b \& 50\%"


def test_settings_and_provenance(results: Results) -> None:
    settings = {row[0]: row[1:] for row in tables.settings(results).rows}
    assert settings["momentum (\N{GREEK SMALL LETTER BETA})"][2] == "0, 0.2, 0.4, 0.6, 0.8"
    assert settings["runs"] == ["2", "2", "1", "1"]
    about = {row[0]: row[1] for row in tables.provenance(results).rows}
    assert about["machine"] == "a machine"
    assert about["Methods"] == "378 of 379 cases done, 1 failed"
    assert tables.failures(results).rows == [["</script><b>", "1", "ijcnn1 lr des alpha=1 run 9"]]
    assert verdicts.departures(results) == "at most 2 runs"
    uneven = [*curves(["ijcnn1"], runs=8), *curves(["rcv1-subset"], runs=2)]
    assert verdicts.departures(one_item("curves", uneven)) == "2 runs on rcv1-subset"


def test_rank_correlation_is_spearmans() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 9, 40).astype(float), rng.integers(0, 9, 40).astype(float)
    expected = spearmanr(one, one + other).statistic
    assert claims.rank_correlation(one, one + other) == pytest.approx(expected)


# The command.


def test_the_command(folder: Path, tmp_path: Path) -> None:
    before = (folder / "results.sqlite").read_bytes()
    done = call("report", folder, "--out", tmp_path, "--format", "html,tex")
    assert (done.returncode, done.stderr) == (0, "")
    assert "does not hold" in done.stdout
    assert "\x1b" not in done.stdout
    for name in ("index.html", "claims.md", "claims.json", "table-1-data-sets.tex"):
        assert f"{tmp_path / name}\n" in done.stdout
        assert (tmp_path / name).stat().st_size > 100
    judged = json.loads((tmp_path / "claims.json").read_text())
    assert len(judged) == len(claims.CLAIMS)
    assert (folder / "results.sqlite").read_bytes() == before


def test_errors_say_what_to_do(folder: Path, tmp_path: Path) -> None:
    for arguments, code, text in (
        ((tmp_path,), 1, "desopt suite"),
        ((folder, "--format", "png"), 2, "html, svg, pdf, tex"),
    ):
        done = call("report", *arguments)
        assert done.returncode == code
        assert text in done.stderr
        assert done.stderr.count("\n") == 1
    message = "ObjectiveError: no\n\nOriginal traceback:\nTraceback (most recent"
    only_failed = [outcome(case(), status="failed", message=message, curve={})]
    with pytest.raises(
        ValueError, match=r"nothing to report; 1 failed: ObjectiveError: no; .*retry"
    ):
        read_results(write(tmp_path / "failed", {"curves": only_failed}))
    both = [*only_failed, outcome(case(run=1))]
    table = tables.failures(read_results(write(tmp_path / "both", {"curves": both})))
    assert table.rows[0][0] == "ObjectiveError: no"


def test_without_matplotlib(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'desopt\[report\]'"):
        writing.write(results, tmp_path, ["html", "svg"], lambda *_: None)
    assert writing.write(results, tmp_path, ["html"], lambda *_: None).paths


def test_the_methods_of_the_fake_results_are_the_papers() -> None:
    assert set(ENDS) == {*claims.DES, *claims.RIVALS}


# The curve of a single run.


def test_the_curve_of_a_run_is_drawn_from_its_files(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"method": "des-mr"}')
    (tmp_path / "result.json").write_text('{"initial_loss": 0.7}')
    history = tmp_path / "history.csv"
    history.write_text("round,loss\n1,\n2,0.5\n3,inf\n")
    assert drawing.run_curve(tmp_path) == tmp_path / "curve.png"
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    history.write_text("round,loss\n1,\n2,\n")
    assert drawing.run_curve(tmp_path) is None


def test_more_lines_than_methods_look_different() -> None:
    assert len({style.numbered_look(place) for place in range(40)}) == 40
