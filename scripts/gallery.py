"""Fits small models, writes each as a page, and compares the generative ones on one page: build/gallery/index.html.

python scripts/gallery.py [--OPTION=VALUE ...]: the options are passed to every fit.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from seqlab.files.html_page import html_page

OUT = Path("build/gallery")


class Shown(NamedTuple):
    """
    Attributes:
        config: the config given to `seqlab fit`.
        taps: the intermediate outputs of its bundle.
    """

    config: str
    says: str
    taps: str


MODELS = {
    "gru": Shown("lm/gru", "A GRU on the English text of CPython's documentation, a character at a time", "state"),
    "attention": Shown("lm/attention-rope", "Attention with rotary positions on the same text", "attention,state"),
    "mamba": Shown("lm/mamba", "Mamba on the same text", "state"),
    "lstm": Shown("lm/lstm", "An LSTM on the same text", "state"),
    "kimi": Shown("lm/hybrid-kimi", "Three Kimi delta attentions to one attention on the same text", "attention,state"),
    "window": Shown("lm/window", "A neural n-gram of eight characters on the same text", "state"),
    "masked": Shown("mlm/transformer", "A small BERT on the same text: hide characters, and let it guess", "attention"),
    "dates": Shown(
        "translate/dates", "Dates in 23 locales to ISO 8601, by a GRU that attends to the source", "attention,state"
    ),
    "digits": Shown("image/vit", "A small ViT on scikit-learn's digits: draw one", "attention,state"),
    "pixels": Shown("image/pixels-gru", "A bidirectional GRU that reads the same digits by the pixel", "state"),
}
WRITERS = ("gru", "attention", "mamba")


def main(options: list[str]) -> int:
    if OUT.exists():
        sys.exit(f"{OUT} exists: move it away to make another gallery")
    gallery, rows = time.strftime("gallery-%Y%m%d-%H%M%S"), list[str]()
    for name, model in MODELS.items():
        experiment = f"{gallery}-{name}"
        seqlab("fit", "--config", model.config, "--experiment", experiment, "--run_name", name, *options)
        seqlab("export", run_of(experiment), "--out", OUT / "bundles" / name, "--taps", model.taps)
        rows.append(page(name, [name], model.says))
    rows.append(page("compare", WRITERS, "The three that write, side by side on one text"))
    body = f"<h1>Gallery</h1><ul>{''.join(rows)}</ul>"
    (OUT / "index.html").write_text(html_page("Gallery", body, STYLE, "page"), "utf-8")
    print(f"Gallery {OUT / 'index.html'} · next: open it in a browser")
    return 0


def run_of(experiment: str) -> str:
    """The id of its only run; other experiments may have a run of the same name."""
    command = [sys.executable, "-m", "seqlab.cli", "compare", "--experiment", experiment, "--quiet"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[0]


def page(name: str, models: tuple[str, ...] | list[str], says: str) -> str:
    """Writes the page and returns its line in the index."""
    file = OUT / f"{name}.html"
    seqlab("page", *(OUT / "bundles" / model for model in models), "--out", file)
    return f'<li><a href="{file.name}">{name}</a>: {says} ({file.stat().st_size / 1e6:.1f} MB)</li>'


def seqlab(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "seqlab.cli", *map(str, arguments)], check=True)


STYLE = "body { max-width: 45rem; padding: 2rem 1.25rem; font-size: 17px; } li { margin: .5rem 0; }"

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
