"""Takes the pictures of docs/page.md from the pages of `make gallery`: docs/page/VIEW-WIDTH-SCHEME.png.

python scripts/screenshots.py [VIEW ...]
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from selenium import webdriver

OUT = Path("docs/page")
TEXT = "The function returns a "
SECONDS = 120
COLOURS = 200


class View(NamedTuple):
    """
    Attributes:
        page: the page of the gallery.
        done: a CSS selector that matches once everything is shown.
        press: a button to press first.
    """

    page: str
    tab: str
    done: str
    press: str = ""


class Width(NamedTuple):
    """Width of a page in pixels, screen pixels for each of them, and the maximum height of a picture."""

    pixels: int
    scale: int
    height: int


VIEWS = {
    "try-it": View("gru", "Try it", "#write:not(:disabled)", "#write"),
    "next-token": View("gru", "Next token", "#choices .bars"),
    "look-inside": View("attention", "Look inside", "#inside svg, #inside canvas"),
    "compare": View("compare", "Compare", "#compare:not(:disabled)", "#compare"),
}
WIDTHS = (Width(1280, 1, 1400), Width(390, 2, 1400))
SCHEMES = ("light", "dark")


def main(names: list[str]) -> int:
    browser = started()
    OUT.mkdir(exist_ok=True)
    for name in names or VIEWS:
        for width in WIDTHS:
            for scheme in SCHEMES:
                file = OUT / f"{name}-{width.pixels}-{scheme}.png"
                picture = taken(browser, VIEWS[name], width, scheme)
                picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
                print(file, f"{file.stat().st_size / 1e3:.0f} kB")
    browser.quit()
    return 0


def started() -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def taken(browser: Any, view: View, width: Width, scheme: str) -> Image.Image:
    size = {"width": width.pixels, "height": 600, "deviceScaleFactor": width.scale, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get((Path("build/gallery") / f"{view.page}.html").resolve().as_uri())
    until(browser, "return document.body.dataset.ready !== undefined")
    next(tab for tab in browser.find_elements("css selector", "[role=tab]") if tab.text == view.tab).click()
    browser.execute_script(
        "const field = document.querySelector('#panel textarea'); field.value = arguments[0];"
        "field.dispatchEvent(new Event('input', {bubbles: true}))",
        TEXT,
    )
    time.sleep(2)  # a view reads the input after a pause
    if view.press:
        browser.execute_script(f"document.querySelector('{view.press}').click()")
    until(browser, f"return document.querySelector('{view.done}') !== null")
    height = min(width.height, browser.execute_script("return document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": width.pixels, "height": height, "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    return Image.open(io.BytesIO(base64.b64decode(shot["data"])))


def until(browser: Any, script: str) -> None:
    end = time.monotonic() + SECONDS
    while not browser.execute_script(script):
        if time.monotonic() > end:
            sys.exit(f"after {SECONDS} s still not: {script}")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
