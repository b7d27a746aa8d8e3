"""Verbs that measure many models at once: parity, conformance."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqlab.cli.verb import TRUST, argument, verb
from seqlab.files.atomic import make_folder, write_atomically
from seqlab.files.finite_json import dumps
from seqlab.files.place_to_write import files_to_write

if TYPE_CHECKING:
    from seqlab_export.reports.parity import Cell


@verb(
    "measure the parity of models in every precision on every runtime",
    argument("--models", nargs="+", required=True, metavar="CONFIG", help="configs (untrained models) or runs"),
    argument(
        "--precisions",
        nargs="+",
        default=["fp32", "fp16", "bf16", "int8", "int4"],
        metavar="NAME",
        help="precisions; default: fp32, fp16, bf16, int8 and int4",
    ),
    argument("--out", metavar="DIR", help="folder for parity.md and parity.json; default: not written"),
    TRUST,
)
def parity(options: argparse.Namespace) -> int:
    from seqlab.cli.bundle import export_run
    from seqlab.cli.untrained import untrained
    from seqlab.config.configs import config_names
    from seqlab.config.quiet import quiet
    from seqlab.trained.load import load_run
    from seqlab_export.capture.precision import check_precision
    from seqlab_export.reports.bundle_model import score
    from seqlab_export.reports.parity import parity_of_model, to_json
    from seqlab_export.reports.parity_page import show, to_markdown

    quiet()
    for precision in options.precisions:
        check_precision(precision)
    out = _folder(options.out, "parity", "model")
    measured: list[Iterator[Cell]] = []
    for name in options.models:
        if name in config_names() or name.endswith(".yaml"):
            loaded, scores = untrained(name), None
        else:
            loaded = load_run(name, trust=options.trust)
            scores = partial(score, loaded.task, datamodule=loaded.datamodule) if loaded.datamodule else None
        measured.append(parity_of_model(name, partial(export_run, loaded), loaded.model, options.precisions, scores))
    cells = show(chain(*measured))
    if out is not None:
        _write(out, "parity", to_markdown(cells), to_json(cells))
    return 1 if any(cell.ok is False for cell in cells) else 0


@verb(
    "check the laws of every mixer with every positional encoding and measure the errors",
    argument("--mixers", nargs="+", metavar="NAME", help="names or class paths; default: all"),
    argument("--positions", nargs="+", metavar="NAME", help="names or class paths; default: all"),
    argument("--out", metavar="DIR", help="folder for conformance.md and .json; default: not written"),
)
def conformance(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.config.quiet import quiet
    from seqlab.files.phases import listened
    from seqlab.mixer import Mixer
    from seqlab.positions import PositionalEncoding
    from seqlab_export.reports.conformance import all_mixers, all_positions, conformance
    from seqlab_export.reports.conformance_page import reasons, to_json, to_markdown, to_table

    quiet()
    mixers = _chosen(options.mixers, all_mixers(), Mixer)
    encodings = _chosen(options.positions, all_positions(), PositionalEncoding)
    out = _folder(options.out, "conformance", "mixer")
    rows: list[Any] = []
    num_pairs = len(mixers) * len(encodings)
    with Console(stderr=True).status("measuring") as status:

        def show(phase: str, done: int, total: int) -> None:
            status.update(f"measuring; done: {len(rows)} of {num_pairs} pairs; {phase} {done}/{total}")

        with listened(show):
            rows.extend(conformance(mixers, encodings))
    Console().print(to_table(rows))
    print("".join(f"{line}\n" for line in reasons(rows)), end="")
    failed = sum(cell.failed is not None for row in rows for cell in row.cells.values())
    print(f"{len(rows)} pair{'' if len(rows) == 1 else 's'}, {failed} cells failed")
    if out is not None:
        _write(out, "conformance", to_markdown(rows), to_json(rows))
    return 1 if failed else 0


def _folder(out: str | None, name: str, first: str) -> Path | None:
    """Output folder of a matrix; None = not written. `first` is the first key of each cell in its JSON file."""
    marks = {f"{name}.md": f"Made by `seqlab {name}`", f"{name}.json": f'[\n {{\n  "{first}": "'}
    return None if out is None else files_to_write(out, marks)


def _write(out: Path, name: str, page: str, cells: list[dict[str, Any]]) -> None:
    make_folder(out)
    write_atomically(out / f"{name}.md", page)
    write_atomically(out / f"{name}.json", dumps(cells, indent=1) + "\n")


def _chosen(names: list[str] | None, known: dict[str, Any], base: type) -> dict[str, Any]:
    """Known entries by name, or classes by path; all known entries by default."""
    return {name: known[name] if name in known else _own_class(name, known, base) for name in names or known}


def _own_class(path: str, known: dict[str, Any], base: type) -> Any:
    module, _, name = path.rpartition(".")
    from seqlab.config.configs import instead

    own = f"a {base.__name__} of your own has a class path, such as my_module.MyClass"
    if not module:
        raise ValueError(f"there is no {path}; {instead(path, list(known))}; {own}")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise ValueError(f"{path} cannot be imported: {error}; {own}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{path} is not a {base.__name__}; {own}")
    return found


VERBS = (parity, conformance)
