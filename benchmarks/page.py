"""Time to the first token of a page's model of a million parameters, from the start of loading.

python benchmarks/page.py
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from selenium import webdriver

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU, Mamba
from seqlab_data.tokenizers import CharTokenizer
from seqlab_export.bundle import export_bundle
from seqlab_export.page.html import TEMPLATE, Shown, write_page

ROUNDS = 7
WIDTH = {Attention: 144, GRU: 132, Mamba: 128}
TOKENIZER = CharTokenizer("".join(map(chr, range(32, 127))))
FIRST_TOKEN = """
const done = arguments[0];
const when = (ready, then) => ready() ? then(performance.now()) : setTimeout(() => when(ready, then), 1);
when(() => document.body.dataset.ready !== undefined, (opened) => {
  const field = document.querySelector("#panel textarea");
  field.value = "The function";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  document.querySelector("#write").click();
  when(() => document.querySelector("#written mark")?.textContent, (written) => done([opened, written]));
});
"""


def milliseconds(page: Path) -> tuple[float, float]:
    """Milliseconds until the model is loaded, and until its first token, in a fresh browser."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        browser.get(page.as_uri())
        opened, written = browser.execute_async_script(FIRST_TOKEN)
        return opened, written
    finally:
        browser.quit()


def measure(mixer: Any, positions: Any, folder: Path) -> None:
    torch.manual_seed(0)
    model = DecoderLM(TOKENIZER.vocab_size, 256, d_model=WIDTH[mixer], num_layers=4, mixer=mixer, positions=positions)
    export_bundle(model, TOKENIZER, folder / "bundle", run_id="benchmark", commit="benchmark", seq_len=256)
    write_page([Shown(mixer.__name__, folder / "bundle")], folder / "page.html")
    rounds = [milliseconds(folder / "page.html") for _ in range(ROUNDS)]
    opened, written = (statistics.median(column) for column in zip(*rounds, strict=True))
    slowest = max(first for _, first in rounds)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    size = (folder / "page.html").stat().st_size / 2**20
    print(
        f"{mixer.__name__}, {parameters:,} parameters, {size:.1f} MiB: open after {opened:,.0f} ms, "
        f"first token after {written:,.0f} ms, at most {slowest:,.0f}"
    )


if __name__ == "__main__":
    if not (TEMPLATE.is_file() and shutil.which("chromium") and shutil.which("chromedriver")):
        sys.exit("not run: it needs chromium, chromedriver and the page's template (make web)")
    for mixer, positions in ((Attention, RoPE), (GRU, NoPositions), (Mamba, NoPositions)):
        with tempfile.TemporaryDirectory() as folder:
            measure(mixer, positions, Path(folder))
