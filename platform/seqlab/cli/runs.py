"""Verbs for configs and runs: configs, compare, ui, import-hf, consolidate."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from seqlab.cli.verb import RUN, TRUST, argument, decimal, verb, whole_number

PAIRED_LACKS = ("metric", "tokens", "price", "out", "quiet", "until_decided", "max_seeds", "jobs")
"""Options of compare that `--paired` does not take."""


@verb(
    "list the packaged configs, or print one",
    argument("name", nargs="?", metavar="NAME", help="name of a config; default: list them"),
)
def configs(options: argparse.Namespace) -> int:
    from seqlab.config.configs import config_names, config_path, config_summary

    if options.name is not None:
        print(config_path(options.name).read_text(encoding="utf-8"), end="")
        return 0
    width = max(map(len, config_names()))
    for name in config_names():
        print(f"{name:{width}}  {config_summary(name)}")
    return 0


@verb(
    "compare runs in a table sorted by a metric",
    argument("runs", nargs="*", metavar="RUN", help="default: every run of the experiment"),
    argument("--experiment", metavar="NAME", help="experiment whose runs are compared"),
    argument("--metric", metavar="M", help="metric to sort by; default: val/loss"),
    argument("--tokens", type=decimal, metavar="N", help="add a column with the days to train on N tokens"),
    argument("--price", type=decimal, metavar="P", help="add a column with the cost at P per hour"),
    argument("--out", metavar="FILE.html", help="write a report with loss curves and quality against cost"),
    argument("-q", "--quiet", action="store_true", help="print run ids only, best first"),
    argument(
        "--paired", action="store_true", help="compare the first RUN with each of the others on the same test examples"
    ),
    argument("--until-decided", action="store_true", help="fit more seeds of rows whose order is open"),
    argument("--max-seeds", type=whole_number, metavar="N", help="seeds of a row until then; default: 10"),
    argument("--jobs", type=whole_number, metavar="N", help="concurrent fits of --until-decided; default: 1"),
    TRUST,
)
def compare(options: argparse.Namespace) -> int:
    if options.paired:
        from seqlab.cli.paired import compare_paired

        given = {name: getattr(options, name) for name in PAIRED_LACKS}
        if others := [name.replace("_", "-") for name, value in given.items() if value not in (None, False)]:
            raise ValueError(f"--paired prints how models differ by test example, and takes no --{others[0]}")
        compare_paired(options.runs, experiment=options.experiment, trust=options.trust)
        return 0
    from rich.console import Console

    from seqlab.comparison.comparison import compare
    from seqlab.files.html_page import made_by
    from seqlab.files.place_to_write import file_to_write

    limits = {"--max-seeds": options.max_seeds, "--jobs": options.jobs}
    if not options.until_decided and (idle := [name for name, value in limits.items() if value is not None]):
        raise ValueError(f"{idle[0]} is for --until-decided")
    out = None if options.out is None else file_to_write(options.out, made_by("compare"))
    result = compare(
        options.runs or None,
        experiment=options.experiment,
        metric="val/loss" if options.metric is None else options.metric,
        tokens=options.tokens,
        price=options.price,
    )
    if options.until_decided:
        from seqlab.cli.decided import compare_until_decided

        most = 10 if options.max_seeds is None else options.max_seeds
        jobs = 1 if options.jobs is None else options.jobs
        result = compare_until_decided(result, most, jobs, options.trust)
    if options.quiet:
        print("\n".join(run.id for group in (result, *result.apart) for run in group.runs))
    else:
        console = Console()
        console.print(result.table())
        for group in result.apart:
            console.print(f"\nNot ranked with these, {result.reason(group)}: {group.title}", markup=False)
            console.print(group.table())
    if out is not None:
        from seqlab.comparison.report import write_report

        write_report(result, out)
        print(f"Report: {options.out}", file=sys.stderr)
    return 0


@verb(
    "open the MLflow UI on the store, on localhost only",
    argument("--port", type=whole_number, default=5000, metavar="N", help="port, 1 to 65535; default: 5000"),
)
def ui(options: argparse.Namespace) -> int:
    from seqlab.tracking.server import ui

    return ui(port=options.port)


@verb(
    "import a checkpoint folder of transformers as a run",
    argument("folder", metavar="PATH", help="folder with config.json and the weights"),
    argument("--experiment", default="imported", metavar="NAME", help="experiment of the run; default: imported"),
    argument("--run-name", metavar="NAME", help="name of the run; default: the folder's name"),
)
def import_hf(options: argparse.Namespace) -> int:
    from seqlab.cli.phases import phases_shown
    from seqlab.trained import import_hf

    with phases_shown("reading the checkpoint"):
        run = import_hf.import_hf(Path(options.folder), experiment=options.experiment, run_name=options.run_name)
    name, within = run.run_name, "not compared: transformers is not installed"
    if run.difference is not None:
        within = f"within {run.difference:.1e} of transformers' (RMS)"
    quoted = shlex.quote(name)
    command = f'generate {quoted} --prompt "..."' if run.has_tokenizer else f"export {quoted} --out bundles/{quoted}"
    reads = "" if run.has_tokenizer else " of ids, as the folder has no tokenizer.json"
    print(f"Run {name}{reads}, its logits {within} · next: seqlab {command}")
    if run.has_tokenizer:
        config = shlex.quote(os.path.relpath(run.config))
        print(f"To train it on: seqlab fit --config {config} --init_from {quoted} --data.path TEXT")
    if run.chats:
        print(f"It answers chats: seqlab serve {quoted}")
    elif run.why_no_chats:
        print(f"It answers no chats, as {run.why_no_chats}")
    return 0


@verb("merge a sharded checkpoint into one file", RUN)
def consolidate(options: argparse.Namespace) -> int:
    from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint
    from seqlab.trained.load import checkpoint_of

    path, _ = checkpoint_of(options.target)
    if "shards" not in read_checkpoint(path, weights=False):
        raise ValueError(f"checkpoint {path} is already one file; there is nothing to consolidate")
    one_file = path.with_suffix(f".consolidated{path.suffix}")
    AtomicCheckpointIO().save_checkpoint(read_checkpoint(path), one_file)
    print(f"Checkpoint {one_file} · next: seqlab export {shlex.quote(str(one_file))} --out bundles/{path.stem}")
    return 0


VERBS = (configs, compare, ui, import_hf, consolidate)
