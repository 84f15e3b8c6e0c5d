"""The page in a real browser, from disk."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.browser import addresses, complaints, needed, open_page, started, webdriver
from helpers.fake_results import curves, sweep, write

from desopt.report.results import read_results
from desopt.report.write import write as write_report

pytestmark = needed
COMMITTED = Path(__file__).parents[2] / "results"
CURVES = "return [...document.querySelectorAll('#chart path.curve')].map(p => p.getAttribute('d'))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from started(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    betas = {0.0: 1.0, 0.4: 0.0, 0.8: 5.0}
    both = curves(("ijcnn1", "susy-like"), runs=2, luck=0.05)
    write(folder, {"curves": both, "alpha": both, "momentum": sweep("momentum", betas)})
    written = write_report(read_results(folder), folder / "report", ["html"], lambda *_: None)
    return written.paths[0].as_uri()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Data sets and items whose names would run a script if a page let them."""
    folder = tmp_path_factory.mktemp("hostile")
    names = (
        'x"><img src=x onerror="window.owned=1">.csv', "</script><script>window.owned=1</script>",
        "__proto__", "a/b", "n" * 5000,
    )  # fmt: skip
    every = curves(names, ends={"des": 0.0, "des-mr": 1.0})
    write(folder, {"alpha": every, "curves": every, names[0]: every})
    written = write_report(read_results(folder), folder / "report", ["html"], lambda *_: None)
    return written.paths[0].as_uri()


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("single")
    write(folder, {"mine": curves(ends={"des": 0.0}, steps=(1.0,))[:1]})
    written = write_report(read_results(folder), folder / "report", ["html"], lambda *_: None)
    return written.paths[0].as_uri()


def pick(browser: Any, control: str, value: str) -> None:
    """Choose in the select with this title, or press the switch of this name."""
    script = """
        const [name, value] = arguments;
        const label = [...document.querySelectorAll('#controls label')]
            .find(each => each.firstChild.textContent === name && each.querySelector('select'));
        if (label) {
            const select = label.querySelector('select');
            select.value = value;
            select.dispatchEvent(new Event('change'));
        } else document.querySelector(`input[name="${name}"][value="${value}"]`).click();
    """
    browser.execute_script(script, control, value)


def test_it_draws_and_asks_nobody(browser: Any, address: str) -> None:
    addresses(browser)  # of the empty page it began with
    open_page(browser, address)
    drawn = browser.execute_script(CURVES)
    assert len(drawn) == 7
    assert all(d.startswith("M") and d.count("L") >= 12 and "NaN" not in d for d in drawn)
    assert browser.execute_script("return document.querySelectorAll('#chart .band').length") == 7
    profiles = "return document.querySelectorAll('#profile-chart path.curve').length"
    assert browser.execute_script(profiles) == 7
    assert complaints(browser) == []
    urls = addresses(browser)
    assert {url.split(":")[0] for url in urls} <= {"file", "data"}


@pytest.mark.parametrize(
    ("control", "value"),
    [
        ("Problem", "nsvm"), ("Data set", "susy-like"), ("Step size", "10"), ("part", "test"),
        ("measure", "error"), ("cost", "evaluations"), ("cost", "upload"), ("cost", "bytes"),
        ("cost", "seconds"), ("logs", "x"), ("logs", "y"), ("Experiment", "2"),
    ],
)  # fmt: skip
def test_every_switch_changes_the_curves(
    browser: Any, address: str, control: str, value: str
) -> None:
    open_page(browser, address)
    look = f"{CURVES}.join() + document.querySelector('#chart .plot').textContent"
    before = browser.execute_script(look)
    pick(browser, control, value)
    after = browser.execute_script(look)
    assert after != before
    assert "NaN" not in after
    assert complaints(browser) == []


def test_all_step_sizes_and_hiding_a_method(browser: Any, address: str) -> None:
    open_page(browser, address)
    pick(browser, "Step size", "all")
    assert len(browser.execute_script(CURVES)) == 21
    pick(browser, "Step size", "best")
    button = browser.find_element("css selector", "#chart .legend button")
    button.send_keys(" ")  # by keyboard
    assert button.get_attribute("aria-pressed") == "false"
    assert len(browser.execute_script(CURVES)) == 6
    pick(browser, "part", "test")  # it stays hidden
    assert len(browser.execute_script(CURVES)) == 6


def test_the_read_out_tells_the_median(browser: Any, address: str) -> None:
    open_page(browser, address)
    plot = browser.find_element("css selector", "#chart .plot")
    readout = browser.find_element("css selector", "#chart .readout")
    assert not readout.is_displayed()
    plot.send_keys("\ue012")  # arrow left: the last point
    assert readout.is_displayed()
    first = readout.text.splitlines()[0]
    assert first == "rounds 40"
    assert len(readout.find_elements("css selector", "tr")) == 7
    plot.send_keys("\ue00c")  # escape
    assert not readout.is_displayed()
    webdriver.ActionChains(browser).move_to_element(plot).perform()
    assert readout.is_displayed()


@pytest.mark.parametrize("width", [360, 390, 768])
def test_a_phone_needs_no_scrolling_to_the_side(browser: Any, address: str, width: int) -> None:
    open_page(browser, address, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert len(browser.execute_script(CURVES)) == 7


def test_on_a_phone_controls_come_first_and_nothing_is_clipped(browser: Any, address: str) -> None:
    open_page(browser, address, 390)
    inside = """
        const right = document.documentElement.clientWidth;
        return [...document.querySelectorAll('.pills label, .controls select')]
            .filter((each) => !each.closest('[hidden]'))
            .every((each) => each.scrollWidth <= each.clientWidth + 1
                && each.getBoundingClientRect().right <= right
                && [...each.parentElement.parentElement.parentElement.children]
                    .every((box) => box.getBoundingClientRect().right <= right));
    """
    assert browser.execute_script(inside)
    order = """
        const top = (name) => document.getElementById(name).getBoundingClientRect().top;
        return top('controls') < top('chart') && top('profile-controls') < top('profile-chart');
    """
    assert browser.execute_script(order)


def test_the_first_column_of_a_table_stays(browser: Any, address: str) -> None:
    open_page(browser, address, 390)
    moved = """
        const box = [...document.querySelectorAll('.scroll')]
            .find((each) => each.scrollWidth > each.clientWidth + 60);
        const left = (n) =>
            box.querySelector(`td:nth-child(${n})`).getBoundingClientRect().left;
        const before = [left(1), left(2)];
        box.scrollLeft = 60;
        return [left(1) - before[0], left(2) - before[1]];
    """
    assert browser.execute_script(moved) == [0, -60]


def test_names_run_no_script(browser: Any, hostile: str) -> None:
    open_page(browser, hostile, 390)
    names = browser.execute_script(
        "return [...document.querySelectorAll('#controls label:nth-child(3) option')]"
        ".map(option => option.value)"
    )
    assert len(names) == 5
    for name in names:
        pick(browser, "Data set", name)
        assert len(browser.execute_script(CURVES)) == 2
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert browser.execute_script("return window.owned") is None
    assert complaints(browser) == []


@pytest.mark.parametrize("event", ["script", "handler", "style"])
def test_the_policy_stops_what_came_in_all_the_same(browser: Any, single: str, event: str) -> None:
    open_page(browser, single)
    inserted = {
        "script": "Object.assign(document.createElement('script'), {textContent: 'owned = 1'})",
        "handler": "document.createRange().createContextualFragment("
        "'<img src=data:, onerror=\"window.owned = 1\">')",
        "style": "Object.assign(document.createElement('style'), {textContent: 'p {top: 1px}'})",
    }[event]
    browser.execute_script(f"document.body.append({inserted})")
    limit = time.monotonic() + 60
    while not any("Content Security Policy" in text for text in complaints(browser)):
        assert time.monotonic() < limit, "nothing was refused"
        time.sleep(0.05)
    assert browser.execute_script("return window.owned") is None


def test_a_single_case(browser: Any, single: str) -> None:
    open_page(browser, single)
    assert len(browser.execute_script(CURVES)) == 1
    selects = browser.find_elements("css selector", "#controls select")
    assert len(selects) == 4
    assert not any(select.is_displayed() for select in selects)  # there is nothing to choose
    assert browser.execute_script("return document.getElementById('profiles')") is None
    assert complaints(browser) == []


@pytest.mark.parametrize(
    "page", sorted(COMMITTED.glob("*/report/index.html")), ids=lambda page: page.parts[-3]
)
def test_committed_pages_have_no_empty_chart(browser: Any, page: Path) -> None:
    open_page(browser, page.as_uri())
    for chart in browser.find_elements("css selector", ".chart"):
        assert chart.find_elements("css selector", "path.curve")
    for image in browser.find_elements("css selector", "main img"):
        assert int(image.get_property("naturalWidth")) > 0
    assert complaints(browser) == []
