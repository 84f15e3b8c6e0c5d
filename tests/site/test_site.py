"""The documentation site as built by ``make docs``: links, widths, search, no network."""

import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from helpers.browser import addresses, needed, started

pytestmark = pytest.mark.docs
SITE = Path(__file__).parents[2] / "build" / "site"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
#: Pages of our own making, not of the theme: they have their own tests.
REPORTS = [name for name in PAGES if name.endswith("report/index.html")]


class Page(HTMLParser):
    """The ids of a page, and the addresses that it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.ids.add(value)
            elif name == "href" and tag == "a":
                self.links.append(value)
            elif name == "src" or (name == "href" and tag == "link"):
                self.loaded.append(value)


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    assert PAGES, f"{SITE} is empty: make docs builds the site"
    return {name: Page((SITE / name).read_text(encoding="utf-8")) for name in PAGES}


def test_every_link_leads_somewhere(pages: dict[str, Page]) -> None:
    broken = []
    for name, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            path = (SITE / name).parent / unquote(parts.path) if parts.path else SITE / name
            known = pages.get(path.resolve().relative_to(SITE).as_posix())
            found = path.is_file() and (
                not parts.fragment or known is None or unquote(parts.fragment) in known.ids
            )
            if not found:
                broken.append(f"{name}: {link}")
    assert not broken


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, Page]) -> None:
    loaded = {urlsplit(link).scheme for page in pages.values() for link in page.loaded}
    assert loaded <= {"", "data"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from started(tmp_path_factory.mktemp("profile"))


def set_width(browser: Any, width: int) -> None:
    size = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@needed
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_complains_or_scrolls_sideways(browser: Any, width: int) -> None:
    set_width(browser, width)
    faults = []
    for name in PAGES:
        if name in REPORTS:
            continue
        browser.get((SITE / name).as_uri())
        faults += [f"{name}: {entry['message']}" for entry in browser.get_log("browser")]
        wide = browser.execute_script(
            "const page = document.scrollingElement; window.scrollTo(1000, 0);"
            "return Math.max(window.scrollX, page.scrollWidth - page.clientWidth)"
        )
        if wide > 0:
            faults.append(f"{name}: {wide} pixels too wide at {width}")
    assert not faults


@needed
@pytest.mark.parametrize("word", ["replay", "participation", "momentum"])
def test_search_finds_a_word_from_disk(browser: Any, word: str) -> None:
    set_width(browser, 390)
    addresses(browser)  # of earlier tests
    browser.get(f"{(SITE / 'search.html').as_uri()}?q={word}")
    found: list[str] = []
    while not found:  # the script reads its index; pytest's time limit ends a search without result
        script = "return [...document.querySelectorAll('#search-results li a')].map(a => a.href)"
        found = browser.execute_script(script)
        time.sleep(0.05)
    assert any((SITE / urlsplit(link).path).exists() for link in found)
    excerpts: list[str] = []
    while not excerpts:
        script = "return [...document.querySelectorAll('li .context')].map(p => p.textContent)"
        excerpts = browser.execute_script(script)
        time.sleep(0.05)
    assert any(word in text.lower() for text in excerpts)
    assert browser.get_log("browser") == []
    assert {urlsplit(url).scheme for url in addresses(browser)} <= {"file", "data"}
