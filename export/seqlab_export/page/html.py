"""Export of verified bundles to one HTML file. The template is export/web/page/, which `make web` builds."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from seqlab.files.atomic import replacing
from seqlab.files.finite_json import in_page
from seqlab_export.page.largest import check_sizes, names_of
from seqlab_export.page.parts import parts_of
from seqlab_export.runner.manifest import BundleError
from seqlab_export.runner.memory_wall import memory_wall
from seqlab_export.runner.verify import verify_bundle

TEMPLATE = Path(__file__).with_name("template.html")
PLACE = "<!-- PAGE DATA -->"
TRY_IT, LOOK_INSIDE = "Try it", "Look inside"
"""Names of the page's tabs."""
CHUNK = 3 * 2**18
"""Bytes encoded at once; a multiple of 3, so that the base64 of a file is that of its chunks."""


class Shown(NamedTuple):
    """A bundle in a page.

    Attributes:
        run: name, experiment, data and curves of the bundle's run, if known.
        images: preprocessing of images to model inputs, if known.
    """

    name: str
    folder: Path
    run: dict[str, Any] | None = None
    images: dict[str, Any] | None = None


def check_new_page(out: Path) -> None:
    """Raises ValueError if the page cannot be written."""
    if not TEMPLATE.is_file():
        raise ValueError("the page's template is not built: run `make web` in seqlab's repository (it needs Node 20)")
    if out.exists():
        raise ValueError(f"{out} exists; give a new file")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"{out.parent} is not a folder")


def write_page(bundles: Sequence[Shown], out: Path, *, tab: str = TRY_IT, text: str = "") -> None:
    """Verifies bundles and writes them as a page, all or nothing.

    Args:
        out: path of the new file.
        tab: name of the tab shown first.
        text: initial text of the views.

    Raises:
        ValueError: the file exists, the template is not built, or a bundle fails verification or is too large.
    """
    check_new_page(out)
    check_sizes([shown.folder for shown in bundles])
    for shown in bundles:
        _check(shown.folder)
    about = [
        {"name": shown.name, "parts": parts_of(shown.folder), "run": shown.run, "images": shown.images}
        for shown in bundles
    ]
    content = in_page({"bundles": about, "tab": tab, "text": text})
    before, after = TEMPLATE.read_text(encoding="utf-8").split(PLACE)
    with replacing(out) as partial, partial.open("w", encoding="utf-8") as file:
        file.write(f'{before}<script type="application/json" id="page">{content}</script>\n')
        for number, shown in enumerate(bundles):
            file.writelines(_elements(number, shown.folder))
        file.write(after)


def _check(bundle: Path) -> None:
    with memory_wall(bundle):
        report = verify_bundle(bundle)
    if not report.ok:
        first = report.failures[0]
        raise BundleError(f"no page was written: {bundle} fails in {first.kind}, {first.subject}: {first.note}")


def _elements(number: int, bundle: Path) -> Iterator[str]:
    for name in names_of(bundle):
        yield f'<script type="text/plain" data-bundle="{number}" data-path="{escape(name, quote=True)}">'
        with (bundle / name).open("rb") as file:
            while chunk := file.read(CHUNK):
                yield base64.b64encode(chunk).decode()
        yield "</script>\n"
