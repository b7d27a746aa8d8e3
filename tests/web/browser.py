"""A page in a headless browser, as tests drive it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqlab_export.page.html import TEMPLATE

needs_browser = [
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="needs chromedriver"),
    pytest.mark.skipif(not TEMPLATE.is_file(), reason="needs the page's template: make web"),
]
SECONDS = 60


class Opened:
    """A page in a browser.

    Args:
        browser: selenium's.
    """

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def open(self, page: Path, width: int = 1280) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.logs()
        self.browser.get(page.as_uri())
        self.until("return document.body.dataset.ready !== undefined")

    def until(self, script: str) -> Any:
        end = time.monotonic() + SECONDS
        while not (found := self.browser.execute_script(script)):
            assert time.monotonic() < end, self.browser.execute_script("return document.body.innerText")[:2000]
            time.sleep(0.05)
        return found

    def show(self, tab: str) -> None:
        (button,) = (found for found in self.all("[role=tab]") if found.text == tab)
        button.click()

    def give(self, text: str) -> None:
        """Puts a text into the first field of the view."""
        script = (
            "const field = document.querySelector('#panel textarea'); field.value = JSON.parse(arguments[0]);"
            "field.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        self.browser.execute_script(script, json.dumps(text))

    def all(self, selector: str) -> list[Any]:
        return list(self.browser.find_elements("css selector", selector))

    def write(self, **settings: str) -> str:
        for name, value in settings.items():
            (field,) = self.all(f"#panel input[name={name}]")
            field.clear()
            field.send_keys(value)
        self.all("#write")[0].click()
        done = "/^(Done|Stopped|Not done)/.test(document.querySelector('#panel .notice').textContent)"
        self.until(f"return !document.querySelector('#write').disabled && {done}")
        return str(self.browser.execute_script("return document.querySelector('#written mark').textContent"))

    def check(self, width: int) -> None:
        """Nothing is wider than the screen, no text is small, in drawings either, and nothing went wrong."""
        assert self.browser.execute_script("return document.documentElement.scrollWidth") <= width
        sizes = "[...document.querySelectorAll('#panel *')].map((one) => parseFloat(getComputedStyle(one).fontSize))"
        assert self.browser.execute_script(f"return Math.min(...{sizes})") >= 12
        assert not self.all("#panel .wrong") and self.logs() == ([], [])

    def logs(self) -> tuple[list[Any], list[str]]:
        """The console messages since the last call, and the addresses requested over a network."""
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        asked = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
        said = self.browser.get_log("browser")
        return said, [url for url in asked if not url.startswith(("file:", "blob:", "data:"))]


@pytest.fixture(scope="session", name="opened")
def _opened() -> Iterator[Opened]:
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield Opened(browser)
    browser.quit()
