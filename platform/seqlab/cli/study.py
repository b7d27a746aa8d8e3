"""Verb for studies: list, run, page, notebook."""

from __future__ import annotations

import argparse
import os
import sys

from seqlab.cli.verb import argument, verb, whole_number
from seqlab.files.html_page import made_by
from seqlab.files.place_to_write import files_to_write

SCALES = ("smoke", "cpu", "gpu")
SCRIPT = "figures.js"
"""Script shared by the pages of `--all`."""


@verb(
    "test claims of the field",
    argument("does", choices=["list", "run", "page", "notebook"], metavar="list|run|page|notebook", help="action"),
    argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="study, or the path of a .py file that declares one; `worksheet` is a notebook with exercises",
    ),
    argument(
        "--scale",
        choices=SCALES,
        default="cpu",
        help="size of the experiments; smoke only shows that they run; default: cpu",
    ),
    argument("--seeds", type=whole_number, default=3, metavar="N", help="number of seeds; default: 3"),
    argument("--jobs", type=whole_number, metavar="N", help="concurrent fits; default: one per core"),
    argument(
        "--all",
        action="store_true",
        help="write the pages of all studies run here and an index, or all notebooks",
    ),
    argument(
        "--out", default="study-pages", metavar="DIR", help="output folder of pages and notebooks; default: study-pages"
    ),
)
def study(options: argparse.Namespace) -> int:
    if options.does == "list":
        return _list()
    if (options.name is None) is not (options.does != "run" and options.all):
        raise ValueError(f"study {options.does} needs the NAME of a study" + (" or --all" * (options.does != "run")))
    for name in ("seeds", "jobs"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    if options.does == "run":
        return _run(options)
    return (_page if options.does == "page" else _notebook)(options.name, options.out)


def _list() -> int:
    from rich.console import Console
    from rich.table import Table

    from seqlab.study.find import packaged
    from seqlab.study.rules import LECTURES

    table = Table("study", "claim", "who says it", box=None, pad_edge=False, caption=LECTURES, caption_justify="left")
    for one in packaged().values():
        for place, claim in enumerate(one.claims):
            table.add_row(one.name if place == 0 else "", claim.says, claim.source)
    Console().print(table)
    return 0


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.callbacks.stopping import StoppedError
    from seqlab.study.conduct import FIXED_TAG, conduct
    from seqlab.study.find import find_study

    try:
        result = conduct(find_study(options.name), options.scale, options.seeds, options.jobs or os.cpu_count() or 1)
    except StoppedError as stopped:
        print(f"{stopped} · next: the same command", file=sys.stderr)
        raise
    console = Console(highlight=False, markup=False)
    for claim in result.study.claims:
        found = result.judgements[claim.key]
        console.print(f"{claim.says}\n  {found.verdict}: {found.reason}\n  supported where {claim.rule}\n")
    print(f"The commit of these rules: {result.run.tags[FIXED_TAG]}")
    print(f"Next: seqlab study page {options.name}")
    return 0


def _page(name: str | None, out: str) -> int:
    """Writes the page of one study, or of all studies run here, and an index."""
    from seqlab.files.atomic import make_folder, write_atomically
    from seqlab.study.conduct import SCALE_TAG, latest
    from seqlab.study.find import find_study, packaged
    from seqlab.study.page import RECORD_MARK, SCRIPT_MARK, figure_script, index, page, record

    wanted = None if name is None else find_study(name)
    studies = {study.name: study for study in (*packaged().values(), *([wanted] if wanted else []))}
    results = {study.name: found for study in studies.values() if (found := latest(study))}
    shown = [found for of, found in results.items() if wanted is None or of == wanted.name]
    if not shown:
        raise ValueError(f"study {name} was not run here: seqlab study run {name}" if name else "no study was run here")
    script = SCRIPT if wanted is None else ""
    pages = {f"{found[0].study.name}.html": made_by("study") for found in shown}
    records = {f"{found[0].study.name}.json": RECORD_MARK for found in shown}
    folder = files_to_write(
        out, {**pages, **records, **({script: SCRIPT_MARK} if script else {}), "index.html": made_by("study")}
    )
    make_folder(folder)
    if script:
        write_atomically(folder / script, figure_script())
    for found in shown:
        write_atomically(folder / f"{found[0].study.name}.html", page(found, script))
        write_atomically(folder / f"{found[0].study.name}.json", record(found))
    verdicts = [
        (found.study, found.run.tags[SCALE_TAG], {key: one.verdict for key, one in found.judgements.items()})
        for of_study in results.values()
        for found in of_study
    ]
    write_atomically(folder / "index.html", index(verdicts))
    print(f"Wrote {folder / (f'{wanted.name}.html' if wanted else 'index.html')}")
    return 0


def _notebook(name: str | None, out: str) -> int:
    """Writes the notebook of one study, the worksheet, or all notebooks."""
    from seqlab.files.atomic import make_folder, write_atomically
    from seqlab.study.find import find_study, packaged
    from seqlab.study.notebook import WORKSHEET, notebook

    studies = [
        None if one == WORKSHEET else find_study(one) for one in ([*packaged(), WORKSHEET] if name is None else [name])
    ]
    notebooks = {WORKSHEET if study is None else study.name: notebook(study) for study in studies}
    folder = files_to_write(out, {f"{one}.ipynb": "" for one in notebooks})  # it may hold answers
    make_folder(folder)
    for one, content in notebooks.items():
        write_atomically(folder / f"{one}.ipynb", content)
        print(f"Wrote {folder / one}.ipynb")
    return 0


VERBS = (study,)
