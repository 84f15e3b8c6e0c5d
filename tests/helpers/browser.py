"""A real browser for tests of pages. A module that imports this skips without one."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needed = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="needs a browser: apt-get install chromium chromium-driver"
)

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip


def started(profile: Path) -> Iterator[Any]:
    """A browser with this profile, for a fixture."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def open_page(browser: Any, address: str, width: int = 1280) -> None:
    size = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


def addresses(browser: Any) -> set[str]:
    """The addresses that pages have asked for since the last call.

    Chromium begins with a page of its own, chrome://newtab, which may still be loading: what that
    one asks for does not count.
    """
    logged = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"] for m in logged if m["method"] == "Network.requestWillBeSent"]
    return {a["request"]["url"] for a in asked if not a["documentURL"].startswith("chrome")}
