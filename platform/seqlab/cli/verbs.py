"""What each verb of the `seqlab` command does. Each imports what it needs when it runs.

A verb takes its parsed options and returns the exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.trained.load import LoadedRun
    from seqlab_export.matrices.parity import Cell


def configs(options: argparse.Namespace) -> int:
    from seqlab.config.configs import config_names, config_path, config_summary

    if options.name is not None:
        print(config_path(options.name).read_text(encoding="utf-8"), end="")
        return 0
    width = max(map(len, config_names()))
    for name in config_names():
        print(f"{name:{width}}  {config_summary(name)}")
    return 0


def compare(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.comparison.comparison import compare

    result = compare(
        options.runs or None,
        experiment=options.experiment,
        metric=options.metric,
        tokens=options.tokens,
        price=options.price,
    )
    if options.quiet:
        print("\n".join(run.id for group in (result, *result.apart) for run in group.runs))
    else:
        console = Console()
        console.print(result.table())
        for group in result.apart:
            console.print(f"\nNot ranked with these, {result.reason(group)}: {group.title}", markup=False)
            console.print(group.table())
    if options.out:
        from seqlab.comparison.report import write_report

        write_report(result, Path(options.out))
        print(f"Report: {options.out}", file=sys.stderr)
    return 0


def ui(options: argparse.Namespace) -> int:
    from seqlab.tracking.server import ui

    return ui(port=options.port)


def import_hf(options: argparse.Namespace) -> int:
    from seqlab.trained import import_hf

    run = import_hf.import_hf(Path(options.folder), experiment=options.experiment, run_name=options.run_name)
    name, within = run.run_name, "not compared: transformers is not installed"
    if run.difference is not None:
        within = f"within {run.difference:.1e} of transformers' (RMS)"
    quoted = shlex.quote(name)
    command = f'generate {quoted} --prompt "..."' if run.has_tokenizer else f"export {quoted} --out bundles/{quoted}"
    reads = "" if run.has_tokenizer else " of ids, as the folder has no tokenizer.json"
    print(f"Run {name}{reads}, its logits {within} · next: seqlab {command}")
    return 0


def export(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.cli.release import check_new, log_bundle, write_repository
    from seqlab.trained.load import load_run
    from seqlab_export.bundle import ParityError

    out = Path(options.out)
    check_new(out)
    loaded = load_run(options.target, trust=options.trust)
    with tempfile.TemporaryDirectory() as folder:
        bundle = out if options.format == "bundle" else Path(folder) / "bundle"
        try:
            report = _export_run(
                loaded, options.precision, bundle, provider=options.provider, target=options.graphs, taps=options.taps
            )
        except ParityError as error:
            Console().print(error.report.table())
            print(f"seqlab: {error}", file=sys.stderr)
            return 1
        Console().print(report.table())
        if options.format == "bundle":
            print(f"Bundle {out} · next: {_next_command(out)}")
        else:
            write_repository(bundle, out, loaded.config.get("experiment", "seqlab"), provider=options.provider)
            print(f"Model repository {out} · next: tritonserver --model-repository={out}")
        version = log_bundle(bundle, loaded.run_id, report.to_dict(), provider=options.provider)
    if version is not None:
        print(f"Model {version.model} {version} · next: seqlab promote {shlex.quote(options.target)}")
    return 0


def _export_run(loaded: LoadedRun, precision: Any, out: Path, **options: Any) -> Any:
    from seqlab_export.bundle import export_bundle

    return export_bundle(
        loaded.model,
        loaded.tokenizer,
        out,
        run_id=loaded.run_id or "",
        commit=loaded.commit or "",
        source_tokenizer=loaded.source_tokenizer,
        labels=loaded.labels,
        seq_len=loaded.task.seq_len,
        chooses_one=loaded.task.chooses_one,
        precision=precision,
        **options,
    )


def _next_command(bundle: Path) -> str:
    from seqlab_export.runner.manifest import load_manifest

    manifest, name = load_manifest(bundle), shlex.quote(str(bundle))
    if manifest.model is None:
        return f"seqlab {'classify' if manifest.labels and manifest.tokenizer else 'verify'} {name}"
    prompt = "..." if manifest.tokenizer else "1 2 3"  # ids
    return f'seqlab generate {name} --prompt "{prompt}"' if manifest.encoder is None else f"seqlab translate {name}"


def verify(options: argparse.Namespace) -> int:
    from seqlab_export.runner.memory_wall import memory_wall
    from seqlab_export.runner.verify import verify_bundle

    bundle = Path(options.bundle)
    if options.all:
        return _verify_everywhere(bundle, as_json=options.json)
    with memory_wall(bundle) if options.provider == "cpu" else contextlib.nullcontext():
        report = verify_bundle(bundle, provider=options.provider)
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        from rich.console import Console

        Console().print(report.table())
    return 0 if report.ok else 1


def _verify_everywhere(bundle: Path, *, as_json: bool) -> int:
    from seqlab.trained.load import load_run
    from seqlab_export.matrices.parity import parity_of_bundle, to_json
    from seqlab_export.runner.manifest import load_manifest

    run_id, model = load_manifest(bundle).provenance.run_id, None
    with contextlib.suppress(ValueError):
        model = load_run(run_id).model if run_id else None
    measured = parity_of_bundle(bundle.name, bundle, model)
    if as_json:
        cells = list(measured)
        print(json.dumps(to_json(cells), indent=2))
    else:
        cells = _show_parity(measured)
    return 1 if any(cell.ok is False for cell in cells) else 0


def parity(options: argparse.Namespace) -> int:
    from seqlab.cli.untrained import untrained
    from seqlab.config.configs import config_names
    from seqlab.config.quiet import quiet
    from seqlab.trained.load import load_run
    from seqlab_export.capture.precision import check_precision
    from seqlab_export.matrices.bundle_model import score
    from seqlab_export.matrices.parity import parity_of_model, to_json
    from seqlab_export.matrices.parity_page import to_markdown

    quiet()
    for precision in options.precisions:
        check_precision(precision)
    measured: list[Iterator[Cell]] = []
    for name in options.models:
        if name in config_names() or name.endswith(".yaml"):
            loaded, scores = untrained(name), None
        else:
            loaded = load_run(name, trust=options.trust)
            scores = partial(score, loaded.task, datamodule=loaded.datamodule) if loaded.datamodule else None
        measured.append(parity_of_model(name, partial(_export_run, loaded), loaded.model, options.precisions, scores))
    cells = _show_parity(chain(*measured))
    if options.out is not None:
        out = Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "parity.md").write_text(to_markdown(cells), encoding="utf-8")
        (out / "parity.json").write_text(json.dumps(to_json(cells), indent=1) + "\n", encoding="utf-8")
    return 1 if any(cell.ok is False for cell in cells) else 0


def _show_parity(measured: Iterator[Cell]) -> list[Cell]:
    """A table for each model and precision, as soon as it is measured; what is too long for 80 columns follows it as
    lines."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from seqlab_export.matrices.parity import SAME
    from seqlab_export.matrices.parity_page import COLUMNS, to_row

    console = Console()
    cells: list[Cell] = []
    for (model, precision), group in groupby(measured, key=lambda cell: (cell.model, cell.precision)):
        print(f"Parity of {model} in {precision} with float64")
        table = Table(*COLUMNS[2:-2], box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        with Console(stderr=True).status("measuring") as status:
            several = []
            for cell in group:
                several.append(cell)
                status.update(f"measuring; done: {cell.runtime}")
        cells += several
        lines = []
        for cell in several:
            if cell.missing:
                lines.append(f"{cell.runtime}: {cell.missing}")
                continue
            _, _, runtime, *numbers, greedy, scores = to_row(cell)
            table.add_row(runtime, *numbers)
            lines += [f"{runtime}: greedy text {greedy}"] if greedy not in ("", SAME) else []
            lines += [f"{runtime}: test {scores}"] if scores else []
        if table.rows:
            console.print(table)
        print("\n".join(lines), end="\n\n", flush=True)
    return cells


def conformance(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.config.quiet import quiet
    from seqlab.mixer import Mixer
    from seqlab.positions import PositionalEncoding
    from seqlab_export.matrices.conformance import Row, all_mixers, all_positions, conformance
    from seqlab_export.matrices.conformance_page import reasons, to_json, to_markdown, to_table

    quiet()
    mixers = _chosen(options.mixers, all_mixers(), Mixer)
    encodings = _chosen(options.positions, all_positions(), PositionalEncoding)
    done: list[Row] = []
    with Console(stderr=True).status("measuring") as status:

        def show(row: Row) -> None:
            done.append(row)
            status.update(f"measuring; done: {len(done)} of {len(mixers) * len(encodings)} pairs")

        rows = conformance(mixers, encodings, on_row=show)
    Console().print(to_table(rows))
    print("".join(f"{line}\n" for line in reasons(rows)), end="")
    failed = sum(cell.failed is not None for row in rows for cell in row.cells.values())
    print(f"{len(rows)} pairs, {failed} cells failed")
    if options.out is not None:
        out = Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "conformance.md").write_text(to_markdown(rows), encoding="utf-8")
        (out / "conformance.json").write_text(json.dumps(to_json(rows), indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


def _chosen(names: list[str] | None, known: dict[str, Any], base: type) -> dict[str, Any]:
    """What is known by these names, or the classes of these paths."""
    return {name: known[name] if name in known else _own_class(name, known, base) for name in names or known}


def _own_class(path: str, known: dict[str, Any], base: type) -> Any:
    module, _, name = path.rpartition(".")
    from seqlab.config.configs import instead

    own = f"a {base.__name__} of your own has a class path, as my_module.MyClass"
    if not module:
        raise ValueError(f"there is no {path}; {instead(path, list(known))}; {own}")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise ValueError(f"{path} cannot be imported: {error}; {own}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{path} is no {base.__name__}; {own}")
    return found
