"""The live page in a real browser, while a run goes on."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.browser import addresses, complaints, needed, open_page, started
from helpers.fake_results import curves, write
from helpers.watched import search

import desopt
from desopt.contract.codec import digest_of
from desopt.watch.server import Server

pytestmark = needed

#: A run that waits for a line on its input before every further round.
RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from helpers.watched import search
search(Path(sys.argv[1]), 1000, callbacks=[lambda row: sys.stdin.readline() == ""])
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from started(tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("watched")
    search(root / "<b>ended<b>.journal", seed=3)
    write(root / "study", {"mine": curves(ends={"des": 0.0, "des-mr": 1.0})})
    return root


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    with Server(root) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with serving(root) as server:
        yield server


@pytest.fixture(scope="module")
def going(root: Path) -> Iterator[Callable[[int], None]]:
    """A real run in a process of its own, which goes on by so many rounds when it is called."""
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", RUN, str(root / "going.journal"), tests]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    pipe = process.stdin

    def more(rounds: int) -> None:
        pipe.write(b"\n" * rounds)
        pipe.flush()

    yield more
    pipe.close()  # the end of its input ends it
    process.wait()


def until(browser: Any, script: str, wanted: Callable[[Any], bool]) -> Any:
    """The value of a script once it is as wanted; waits for as long as a machine may need."""
    limit = time.monotonic() + 600
    while True:
        found = browser.execute_script(f"return {script}")
        if wanted(found):
            return found
        assert time.monotonic() < limit, found
        time.sleep(0.05)


def test_the_curve_grows_and_x_is_replayed(
    browser: Any, server: Server, root: Path, going: Callable[[int], None]
) -> None:
    going(4)
    open_page(browser, server.url)
    rounds = """[...document.querySelectorAll('#list tbody tr')]
        .filter(row => row.textContent.includes('going')).map(row => row.children[2].textContent)"""
    until(browser, rounds, lambda found: found == ["5"])
    length = """(document.querySelector('[data-line^="going"] path.curve')
        ?.getAttribute('d').match(/[ML]/g) ?? []).length"""
    until(browser, length, lambda found: found == 6)
    assert len(browser.find_elements("css selector", "#run-chart path.curve")) == 2
    going(7)
    until(browser, length, lambda found: found == 13)  # it grew, and nobody touched the page
    show = """[...document.querySelectorAll('#list button')]
        .find(each => each.textContent.includes(arguments[0])).click();"""
    slide = """const slider = document.getElementById('round');
        slider.value = arguments[1];
        slider.dispatchEvent(new Event('input'));"""
    # a round of another run is still awaited: what is asked for next is not lost with it
    slow = """window.quick = window.ask;
        window.ask = async (...what) => {
          if (what[0] === "point") await new Promise((done) => setTimeout(done, 500));
          return window.quick(...what);
        };"""
    browser.execute_script(slow + show + slide, "ended", 2)
    browser.execute_script(show + slide, "going.journal", 4)
    until(browser, "document.getElementById('point-note').textContent.slice(0, 16)",
          lambda found: found == "x after round 4:")  # fmt: skip
    browser.execute_script("window.ask = window.quick;")
    for round in (3, 12, 0, 8):
        browser.execute_script(slide, None, round)
        text = "document.getElementById('point-note').textContent"
        begins = f"{text}.startsWith('x after round {round}:')"
        until(browser, begins, bool)
        note = browser.find_element("css selector", "#point-note").text
        assert digest_of(desopt.replay(root / "going.journal", round)) in note
        assert len(browser.find_elements("css selector", "#bars .bar")) == 5
    who = browser.find_element("css selector", "#facts").text
    assert "Who answered (3 in the last round)" in who
    browser.execute_script("document.getElementById('play').click()")
    until(browser, "document.getElementById('round').value", lambda found: found == "12")
    assert complaints(browser) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_every_axis_a_study_and_no_scrolling_to_the_side(
    browser: Any, server: Server, width: int
) -> None:
    addresses(browser)
    open_page(browser, server.url, width)
    drawn = "[...document.querySelectorAll('#run-chart path.curve')].map(p => p.getAttribute('d'))"
    until(browser, f"{drawn}.length", lambda found: found >= 1)
    looks = set()
    for cost in ("evaluations", "upload", "bytes", "seconds", "rounds"):
        browser.execute_script(f"document.querySelector('input[value={cost}]').click()")
        label = browser.execute_script(
            "return document.querySelector('#run-chart .plot').getAttribute('aria-label')"
        )
        assert "NaN" not in "".join(browser.execute_script(f"return {drawn}"))
        looks.add(label.split(":")[0])
    assert len(looks) == 5
    until(
        browser, "document.querySelectorAll('#chart path.curve').length", lambda found: found == 2
    )
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.find_elements("css selector", "#list b") == []  # a name is text
    count = browser.execute_script(f"return {drawn}.length")
    browser.execute_script("document.querySelector('#list input:checked').click()")
    until(browser, f"{drawn}.length", lambda found: found == count - 1)
    assert complaints(browser) == []
    assert {
        url.split("/")[2] for url in addresses(browser) if not url.startswith(("data:", "chrome:"))
    } == {f"127.0.0.1:{server.server_port}"}


def test_what_is_read_and_clicked_stays_while_the_page_is_asked_anew(
    browser: Any, server: Server, going: Callable[[int], None]
) -> None:
    going(4)
    open_page(browser, server.url, 390)
    first = "document.querySelector('#run-chart .legend button')?.textContent"
    until(browser, first, lambda found: found and found.startswith("going.journal (des-mr"))
    browser.execute_script("""
        window.asked = 0;
        const before = window.fetch;
        window.fetch = (...all) => {
            window.asked += String(all[0]).includes("overview");
            return before(...all);
        };
        document.querySelector('#list button').focus();
        window.scrollTo({ top: 400, behavior: "instant" });
        document.querySelector('#list button').closest('tr').kept = true;
        document.querySelector('#run-chart .legend button').kept = true;""")
    until(browser, "window.asked", lambda found: found >= 3)
    assert browser.execute_script("return window.scrollY") == 400
    assert browser.execute_script("return document.activeElement.closest('#list tr')?.kept")
    assert browser.execute_script("return document.querySelector('.legend button').kept")
    browser.execute_script("document.querySelector('.legend button').focus({preventScroll: true})")
    going(1)
    until(browser, "window.asked", lambda found: found >= 6)
    assert browser.execute_script("return document.activeElement.kept")
    assert complaints(browser) == []


def test_losses_below_zero_are_in_the_plot(browser: Any, tmp_path: Path) -> None:
    def profit(x: Any) -> float:
        return float(np.sum((x - 1.0) ** 2)) - 10.0

    desopt.minimize(
        profit, np.zeros(5), rounds=12, eval_every=1, journal=tmp_path / "below.journal"
    )
    with serving(tmp_path) as server:
        open_page(browser, server.url)
        until(browser, "document.querySelectorAll('#run-chart path.curve').length", bool)
        heights, area = browser.execute_script("""
            const clip = document.querySelector('#run-chart clipPath rect');
            const d = document.querySelector('#run-chart path.curve').getAttribute('d');
            return [[...d.matchAll(/,([-0-9.]+)/g)].map((found) => Number(found[1])),
                ["y", "height"].map((name) => Number(clip.getAttribute(name)))];""")
        labels = browser.execute_script(
            "return [...document.querySelectorAll('#run-chart .plot text')].map(t => t.textContent)"
        )
    assert len(heights) == 13
    assert all(area[0] <= height <= sum(area) for height in heights)
    assert {"-6", "-8"} <= set(labels)
    assert complaints(browser) == []


@pytest.mark.parametrize(("size", "above"), [(1e-5, 1e-4), (1e-6, 0.31), (1.0, 20_000), (1e17, 0)])
def test_every_tick_has_a_name_of_its_own(
    browser: Any, tmp_path: Path, size: float, above: float
) -> None:
    def cost(x: Any) -> float:
        return size * float(np.sum((x - 1.0) ** 2)) + above

    desopt.minimize(cost, np.zeros(5), rounds=12, eval_every=1, journal=tmp_path / "a.journal")
    with serving(tmp_path) as server:
        open_page(browser, server.url, 390)
        until(browser, "document.querySelectorAll('#run-chart path.curve').length", bool)
        if above:
            browser.execute_script("document.querySelector('[name=run-logs][value=y]').click()")
        names = browser.execute_script("""
            return [...document.querySelectorAll('#run-chart .plot text[text-anchor=end][x]')]
                .map((text) => [text.textContent, text.getBBox().x]).slice(0, -1);""")
    assert len(names) >= 3
    assert len({name for name, _ in names}) == len(names), names
    assert all(len(name) < 9 and left >= 0 for name, left in names)


def test_no_x_and_no_curve_of_another_run_stays(browser: Any, tmp_path: Path) -> None:
    """A run is begun anew with as many bytes, then deleted; another one has no round."""
    first, second, empty = (tmp_path / f"{name}.journal" for name in ("a", "b", "empty"))
    search(first)
    search(second, seed=2)
    empty.write_bytes(first.read_bytes()[:20])
    note = "document.getElementById('point-note').textContent"
    title = "document.getElementById('one-title').textContent"
    curve = """document.querySelector('[data-line^="a.journal"] path.curve').getAttribute('d')"""

    def select(name: str) -> None:
        listed = "[...document.querySelectorAll('#list button')].map(each => each.textContent)"
        place = until(browser, listed, lambda found: name in found).index(name)
        browser.execute_script(f"document.querySelectorAll('#list button')[{place}].click()")
        until(browser, title, lambda found: found == name)

    with serving(tmp_path) as server:
        open_page(browser, server.url)
        select("a.journal")
        until(browser, note, lambda found: digest_of(desopt.replay(first)) in found)
        before = browser.execute_script(f"return {curve}")
        size = first.stat().st_size
        search(tmp_path / "new", seed=3)
        (tmp_path / "new").replace(first)
        assert first.stat().st_size == size
        until(browser, note, lambda found: digest_of(desopt.replay(first)) in found)
        until(browser, curve, lambda found: found != before)
        select("empty.journal")
        assert browser.execute_script(f"return {note}") == ""
        assert browser.find_elements("css selector", "#bars .bar") == []
        select("a.journal")
        until(browser, note, lambda found: digest_of(desopt.replay(first)) in found)
        first.unlink()
        empty.unlink()
        until(browser, title, lambda found: found == "b.journal")
        until(browser, note, lambda found: digest_of(desopt.replay(second)) in found)
    assert complaints(browser) == []


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_leave_room_for_the_numbers(browser: Any, tmp_path: Path, width: int) -> None:
    root = tmp_path / ("folder" * 40)
    root.mkdir()
    search(root / ("L" * 180))
    with serving(root) as server:
        open_page(browser, server.url, width)
        until(browser, "document.querySelectorAll('#run-chart path.curve').length", bool)
        browser.execute_script("""
            const plot = document.querySelector('#run-chart .plot');
            plot.focus();
            plot.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));""")
        until(browser, "document.querySelectorAll('.readout td').length", bool)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        name, reads = browser.execute_script("""
            return ['#list td', '#run-chart .readout'].map(
                (each) => document.querySelector(each).getBoundingClientRect().right);""")
    assert name <= width / 2
    assert reads <= width
    assert complaints(browser) == []


def test_the_token_leaves_the_address(browser: Any, root: Path) -> None:
    with Server(root, "0.0.0.0") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/"
            open_page(browser, f"{address}?token={server.token}")
            until(browser, "document.querySelectorAll('#list tbody tr').length", bool)
            assert browser.current_url == address
            assert server.token not in browser.page_source
        finally:
            browser.get("about:blank")
            server.shutdown()
            thread.join()
