"""A page runs its bundles in a browser: what it writes is what Python writes, and it asks nothing of a network."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from export.planted import asking, edit_graph
from export.toys import Shared
from seqlab.cli import main
from seqlab_export import open_text_model
from seqlab_export.page.html import LOOK_INSIDE, TEMPLATE, Shown, write_page
from seqlab_export.page.parts import parts_of

pytestmark = [
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="needs chromedriver"),
    pytest.mark.skipif(not TEMPLATE.is_file(), reason="needs the page's template: make web"),
]
SECONDS = 60
WIDTHS = (390, 1280)
HOSTILE = {
    "long": "abc def " * 12_500,
    "emoji": "a😀b",
    "markup": "</script><script>window.broken = true</script>",
    "surrogates": "a\ud800b\udc00",
}


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

    def logs(self) -> tuple[list[Any], list[str]]:
        """What the console has said since, and what was asked of a network."""
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        asked = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
        said = self.browser.get_log("browser")
        return said, [url for url in asked if not url.startswith(("file:", "blob:", "data:"))]


@pytest.fixture(scope="module", name="opened")
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


@pytest.fixture(scope="module", name="page")
def _page(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def page(*names: str, **options: Any) -> Path:
        out = tmp_path_factory.mktemp("page") / "model.html"
        write_page([Shown(name, shared(name).folder) for name in names], out, **options)
        return out

    return page


@pytest.mark.parametrize("name", ["attention", "gru"])
def test_it_writes_what_python_writes(name: str, opened: Opened, page: Callable[..., Path], shared: Shared) -> None:
    model = open_text_model(shared(name).folder)
    opened.open(page(name, text="abc "))
    greedy = opened.write(tokens="40", temperature="0")
    assert greedy == model.write("abc ", max_new_tokens=40, temperature=0.0)
    sampled = opened.write(temperature="1.5", seed="7")
    assert sampled == model.write("abc ", max_new_tokens=40, temperature=1.5, seed=7) != greedy
    assert opened.logs() == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_each_view_is_shown_without_error_or_request(width: int, opened: Opened, page: Callable[..., Path]) -> None:
    opened.open(page("attention", "gru", text="abc"), width)
    names = [tab.text for tab in opened.all("[role=tab]")]
    assert names == ["Try it", "Next token", "Look inside", "What it is", "Compare"]
    seen = {"Next token": "#heat .token", "Look inside": "#inside", "What it is": "#prove", "Compare": "#compare"}
    for name in names:
        opened.show(name)
        opened.until(f"return document.querySelector('{seen.get(name, '#write')}') !== null")
        wide = opened.browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, name
        assert not opened.all("#panel .wrong")
        small = (
            "[...document.querySelectorAll('#panel *')].filter((e) => parseFloat(getComputedStyle(e).fontSize) < 12)"
        )
        assert opened.browser.execute_script(f"return {small}.length") == 0, name
    assert opened.logs() == ([], [])


@pytest.mark.slow
def test_it_is_proven_in_the_page(opened: Opened, page: Callable[..., Path]) -> None:
    opened.open(page("gru"))
    opened.show("What it is")
    opened.all("#prove")[0].click()
    opened.until("return document.querySelector('#proof table') !== null")
    assert "Proven here" in opened.browser.execute_script("return document.querySelector('#panel').innerText")


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_stay_texts(text: str, opened: Opened, page: Callable[..., Path]) -> None:
    first = text if text.isprintable() and len(text) < 1000 else ""
    opened.open(page("gru", text=first))
    opened.give(text)
    opened.write(tokens="5")
    opened.show("Next token")
    opened.give(text)
    opened.until("return document.querySelectorAll('#heat .token').length > 1")
    assert opened.browser.execute_script("return window.broken === undefined")
    said, asked = opened.logs()
    assert not said and not asked


@pytest.mark.slow
def test_a_page_may_begin_inside_the_model(opened: Opened, page: Callable[..., Path]) -> None:
    opened.open(page("gru", tab=LOOK_INSIDE, text="fed"))
    opened.until("return document.querySelectorAll('#inside .chart circle').length > 0")
    (selected,) = opened.all("[role=tab][aria-selected=true]")
    assert selected.text == LOOK_INSIDE


@pytest.mark.parametrize("name", ["attention", "gru"])
def test_its_parts_have_all_parameters_of_the_model(name: str, shared: Shared) -> None:
    exported = shared(name)
    assert sum(count for _, count in parts_of(exported.folder)) == sum(p.numel() for p in exported.model.parameters())


def test_a_tampered_bundle_is_refused(shared: Shared, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(shared("gru").folder, bundle)
    content = bytearray((bundle / "weights.bin").read_bytes())
    content[1000] ^= 1
    (bundle / "weights.bin").write_bytes(content)
    assert main(["page", str(bundle), "--out", str(tmp_path / "model.html")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no page was written" in line and "weights.bin: its sha256 is not the manifest's" in line
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_bundle_that_asks_for_memory_is_refused(
    shared: Shared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = Path(shutil.copytree(shared("gru").folder, tmp_path / "bundle"))
    edit_graph(bundle, "model.onnx", asking("ConstantOfShape", ["sizes"], 2**30))
    assert main(["page", str(bundle), "--out", str(tmp_path / "model.html")]) == 2
    assert "no page was written" in capsys.readouterr().err and not (tmp_path / "model.html").exists()


def test_a_file_that_is_there_is_kept(shared: Shared, tmp_path: Path) -> None:
    (tmp_path / "model.html").write_text("mine")
    with pytest.raises(ValueError, match=r"model\.html exists; give a new file"):
        write_page([Shown("gru", shared("gru").folder)], tmp_path / "model.html")
    assert (tmp_path / "model.html").read_text() == "mine"
