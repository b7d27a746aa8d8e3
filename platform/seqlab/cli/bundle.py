"""The verbs of bundles: export, promote, verify."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqlab.cli.shown import shown, stored_run
from seqlab.cli.verb import PROVIDER, RUN, TRUST, argument, decimal, verb
from seqlab.finite_json import dumps

if TYPE_CHECKING:
    from seqlab.tracking.registry import Version
    from seqlab.trained.load import LoadedRun
    from seqlab_export.runner.report import Report


@verb(
    "write a run as an ONNX bundle that is proven equal to it",
    RUN,
    argument("--out", required=True, metavar="DIR", help="a folder that is not there yet; of html a file"),
    argument(
        "--format",
        default="bundle",
        choices=["bundle", "triton", "html"],
        help="triton: a model repository; html: a page that runs it",
    ),
    argument(
        "--precision",
        default="fp32",
        choices=["fp32", "fp16", "bf16", "int8", "int4"],
        help="of the weights; in bf16 they take half the space, and arithmetic is that of fp32; default: fp32",
    ),
    argument(
        "--target",
        dest="graphs",
        default="portable",
        choices=["portable", "ort", "cuda-graph"],
        help="ort has onnxruntime's own nodes; cuda-graph a step that a CUDA graph can record; default: portable",
    ),
    argument(
        "--taps",
        type=lambda names: names.split(","),
        default=[],
        metavar="attention,state",
        help="add a debug twin that gives attention weights and hidden states",
    ),
    PROVIDER,
    TRUST,
)
def export(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.tracking.registry import model_name
    from seqlab.trained.load import load_run
    from seqlab_export.bundle import ParityError, check_new
    from seqlab_export.page.html import check_new_page, write_page
    from seqlab_export.serving import triton

    out = Path(options.out)
    (check_new_page if options.format == "html" else check_new)(out)
    loaded = load_run(options.target, trust=options.trust)
    with tempfile.TemporaryDirectory() as folder:
        bundle = out if options.format == "bundle" else Path(folder) / "bundle"
        settings = {"provider": options.provider, "target": options.graphs, "taps": options.taps}
        try:
            report = export_run(loaded, options.precision, bundle, **settings)
        except ParityError as error:
            Console().print(error.report.table())
            print(f"seqlab: {error}", file=sys.stderr)
            return 1
        Console().print(report.table())
        if options.format == "bundle":
            print(f"Bundle {out} · next: {_next_command(out)}")
        elif options.format == "html":
            write_page([shown(bundle, trust=options.trust)], out)
            print(f"Page {out} · next: open it in a browser")
        else:
            name = model_name(loaded.config.get("experiment", "seqlab"))
            triton.write_repository(bundle, out, name, provider=options.provider)
            print(f"Model repository {out} · next: tritonserver --model-repository={out}")
        version = _register(bundle, loaded.run_id, report, options.provider)
    if version is not None:
        print(f"Model {version.model} {version} · next: seqlab promote {shlex.quote(options.target)}")
    return 0


def export_run(loaded: LoadedRun, precision: Any, out: Path, **options: Any) -> Report:
    """The bundle of a run; see `export_bundle`."""
    from seqlab_export.bundle import export_bundle

    return export_bundle(
        loaded.model,
        loaded.tokenizer,
        out,
        run_id=loaded.run_id or "",
        commit=loaded.commit or "",
        source_tokenizer=loaded.source_tokenizer,
        labels=loaded.labels,
        stop_ids=loaded.stop_ids,
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


def _register(bundle: Path, run_id: str | None, report: Report, provider: Any) -> Version | None:
    """Logs a bundle to its run as a version of the run's model, where the run is in this store.

    What the store cannot do is a warning: the bundle is there.
    """
    from mlflow.exceptions import MlflowException

    from seqlab.tracking.registry import register
    from seqlab_export.runner.manifest import load_manifest
    from seqlab_export.serving.mlflow_model import save_model

    manifest, save = load_manifest(bundle), partial(save_model, bundle, report=report.to_dict(), provider=provider)
    try:
        run = stored_run(run_id)
        return None if run is None else register(run, manifest.precision, manifest.target, save)
    except (OSError, MlflowException) as error:
        print(f"seqlab: the bundle is written, but is no version of its run's model: {error}", file=sys.stderr)
        return None


@verb("make a run's newest bundle the champion of its experiment's model", RUN)
def promote(options: argparse.Namespace) -> int:
    from seqlab.tracking import registry
    from seqlab.tracking.runs import find_run

    run = find_run(options.target)
    before, now = registry.promote(run)
    serve = shlex.join(["mlflow", "models", "serve", "-m", now.uri, "--env-manager", "local"])
    next_command = f"MLFLOW_TRACKING_URI={shlex.quote(run.store.uri)} {serve}"
    print(f"Champion of {now.model}: {now}; before: {before or 'none'} · next: {next_command}")
    return 0


@verb(
    "prove a bundle again; exit code 1 if it fails",
    argument("bundle", metavar="DIR", help="a bundle's folder"),
    argument("--json", action="store_true", help="print the report as JSON"),
    argument("--all", action="store_true", help="on every runtime here, PyTorch too"),
    argument("--seconds", type=decimal, metavar="S", help="longest that a proof may take; default: 3600"),
    PROVIDER,
)
def verify(options: argparse.Namespace) -> int:
    from seqlab_export.runner.memory_wall import memory_wall
    from seqlab_export.runner.verify import verify_bundle

    bundle = Path(options.bundle)
    limits = {} if options.seconds is None else {"seconds": options.seconds}
    if options.all:
        return _verify_everywhere(bundle, as_json=options.json, **limits)
    with memory_wall(bundle) if options.provider == "cpu" else contextlib.nullcontext():
        report = verify_bundle(bundle, provider=options.provider, **limits)
    if options.json:
        print(dumps(report.to_dict(), indent=2))
    else:
        from rich.console import Console

        Console().print(report.table())
    return 0 if report.ok else 1


def _verify_everywhere(bundle: Path, *, as_json: bool, **limits: float) -> int:
    from seqlab.trained.load import load_run
    from seqlab_export.matrices.parity import parity_of_bundle, to_json
    from seqlab_export.matrices.parity_page import show
    from seqlab_export.runner.manifest import load_manifest

    run_id, model = load_manifest(bundle).provenance.run_id, None
    with contextlib.suppress(ValueError):
        model = load_run(run_id).model if run_id else None
    measured = parity_of_bundle(bundle.name, bundle, model, **limits)
    if as_json:
        cells = list(measured)
        print(dumps(to_json(cells), indent=2))
    else:
        cells = show(measured)
    return 1 if any(cell.ok is False for cell in cells) else 0


VERBS = (export, promote, verify)
