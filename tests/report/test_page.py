"""The page in a real browser, from disk."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.fake_results import curves, sweep, write

from desopt.report.results import read_results
from desopt.report.write import write as write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="needs a browser: apt-get install chromium chromium-driver"
)

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
COMMITTED = Path(__file__).parents[2] / "results"
CURVES = "return [...document.querySelectorAll('#chart path.curve')].map(p => p.getAttribute('d'))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


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


def open_page(browser: Any, address: str, width: int = 1280) -> None:
    size = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)


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


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


def test_it_draws_and_asks_nobody(browser: Any, address: str) -> None:
    browser.get_log("performance")  # of the empty page it began with
    open_page(browser, address)
    drawn = browser.execute_script(CURVES)
    assert len(drawn) == 7
    assert all(d.startswith("M") and d.count("L") >= 12 and "NaN" not in d for d in drawn)
    assert browser.execute_script("return document.querySelectorAll('#chart .band').length") == 7
    profiles = "return document.querySelectorAll('#profile-chart path.curve').length"
    assert browser.execute_script(profiles) == 7
    assert complaints(browser) == []
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {
        m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"
    }
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
