"""Verbs for pages that run bundles in a browser: page, inspect."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from seqlab.cli.bundle import check_page_of, export_run
from seqlab.cli.shown import shown
from seqlab.cli.verb import RUN_OR_BUNDLE, TRUST, argument, verb
from seqlab.files.place_to_write import file_to_write

OUT = argument("--out", required=True, metavar="FILE", help="HTML file to write (must not exist)")


@verb(
    "write one HTML file that runs bundles in the browser, offline",
    argument("bundles", nargs="+", metavar="BUNDLE", help="bundle folder; several are compared side by side"),
    OUT,
    TRUST,
)
def page(options: argparse.Namespace) -> int:
    out = write(options.bundles, options.out, trust=options.trust)
    print(f"Page {out} · next: open it in a browser")
    return 0


def write(bundles: Sequence[str], place: str, trust: Sequence[str] = ()) -> Path:
    """Writes the page of some bundles, and returns its path.

    Raises:
        ValueError: a bundle is broken or too large for a browser, or the file exists.
    """
    from seqlab_export.page.html import check_new_page, write_page
    from seqlab_export.page.largest import check_sizes

    check_new_page(out := file_to_write(place))
    check_sizes(folders := [Path(bundle) for bundle in bundles])
    write_page([shown(folder, trust=trust) for folder in folders], out)
    return out


@verb(
    "write a page that shows attention, state and hidden values while a model reads a text",
    RUN_OR_BUNDLE,
    argument("--text", default="", help="text shown first; others can be typed into the page"),
    OUT,
    TRUST,
)
def inspect(options: argparse.Namespace) -> int:
    from seqlab.trained.load import load_run
    from seqlab_export.capture.intermediate_form import intermediate_outputs_of
    from seqlab_export.page.html import LOOK_INSIDE, check_new_page, write_page
    from seqlab_export.page.largest import check_sizes
    from seqlab_export.runner.manifest import load_manifest

    out, bundle = file_to_write(options.out), Path(options.target)
    check_new_page(out)
    with tempfile.TemporaryDirectory() as folder:
        if not (bundle / "manifest.json").is_file():
            check_page_of(options.target, "fp32")
            loaded = load_run(options.target, trust=options.trust)
            bundle = Path(folder) / "bundle"
            export_run(loaded, "fp32", bundle, taps=intermediate_outputs_of(loaded.model))
        elif load_manifest(bundle).taps is None:
            raise ValueError(
                f"{bundle} has no intermediate outputs; give its run, or export it with --taps attention,state"
            )
        check_sizes([bundle])
        write_page([shown(bundle, trust=options.trust)], out, tab=LOOK_INSIDE, text=options.text)
    print(f"Page {out} · next: open it in a browser")
    return 0


VERBS = (page, inspect)
