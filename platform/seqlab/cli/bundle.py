"""Verbs for bundles: export, promote, verify."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqlab.cli.shown import shown
from seqlab.cli.verb import PROVIDER, RUN, RUN_OR_BUNDLE, TRUST, argument, decimal, verb
from seqlab.files.finite_json import dumps
from seqlab.files.place_to_write import file_to_write, folder_to_write

if TYPE_CHECKING:
    from seqlab.tracking.registry import Version
    from seqlab.tracking.runs import TrackedRun
    from seqlab.tracking.store import Store
    from seqlab.trained.load import LoadedRun
    from seqlab_export.runner.report import Report, ValidationLoss


@verb(
    "export a run as an ONNX bundle that is proven equal to it",
    RUN,
    argument(
        "--out",
        required=True,
        metavar="DIR",
        help="output folder (must not exist); with --format html, the output file",
    ),
    argument(
        "--format",
        default="bundle",
        choices=["bundle", "triton", "html"],
        help="triton: a Triton model repository; html: a page that runs the bundle",
    ),
    argument(
        "--precision",
        default="fp32",
        choices=["fp32", "fp16", "bf16", "int8", "int4"],
        help="precision of the weights; bf16 halves the file and computes in fp32; default: fp32",
    ),
    argument(
        "--target",
        dest="graphs",
        default="portable",
        choices=["portable", "ort", "cuda-graph"],
        help="ort: onnxruntime's fused nodes; cuda-graph: a decode step that a CUDA graph records; default: portable",
    ),
    argument(
        "--taps",
        type=lambda names: names.split(","),
        default=[],
        metavar="attention,state",
        help="add a debug graph that also returns intermediate outputs: attention weights, hidden states",
    ),
    PROVIDER,
    TRUST,
)
def export(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.cli.phases import phases_shown
    from seqlab.tracking.registry import model_name
    from seqlab.trained.load import load_run
    from seqlab_export.bundle import ParityError
    from seqlab_export.page.html import check_new_page, write_page
    from seqlab_export.serving import triton

    out = (file_to_write if options.format == "html" else folder_to_write)(options.out)
    if options.format == "html":
        check_new_page(out)
        check_page_of(options.target, options.precision)
    with tempfile.TemporaryDirectory() as folder:
        bundle = out if options.format == "bundle" else Path(folder) / "bundle"
        settings = {"provider": options.provider, "target": options.graphs, "taps": options.taps}
        try:
            with phases_shown("reading the run"):
                loaded = load_run(options.target, trust=options.trust)
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
    return 0


def _validation_loss(loaded: LoadedRun, bundle: Path) -> ValidationLoss | None:
    """Validation loss of a run and of its bundle; None, with the reason on stderr, if it cannot be measured."""
    from seqlab_export.reports.validation_loss import validation_loss

    try:
        return validation_loss(loaded.task, loaded.datamodule, bundle)
    except Exception as error:
        print(f"seqlab: the validation loss was not measured: {' '.join(str(error).split())}", file=sys.stderr)
        return None


def check_page_of(run: str, precision: str) -> None:
    """Raises ValueError, before a run is loaded, if a page of it would be too large for a browser."""
    from seqlab.trained.load import count_weights
    from seqlab_export.page.largest import check_weights

    check_weights(count_weights(run), precision)


def export_run(loaded: LoadedRun, precision: Any, out: Path, **options: Any) -> Report:
    """Exports a run as a bundle, with the cost of a quantised one; see `export_bundle`."""
    from seqlab_export.bundle import export_bundle

    if precision in ("int8", "int4"):
        options["measure"] = partial(_validation_loss, loaded)
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


@verb(
    "make a bundle, or a run's last promoted one, the champion of its experiment's model",
    RUN_OR_BUNDLE,
    PROVIDER,
)
def promote(options: argparse.Namespace) -> int:
    from seqlab.tracking import registry
    from seqlab.tracking.runs import find_run, settle
    from seqlab.tracking.store import Store

    store, bundle, version = Store(), Path(options.target), None
    store.check_exists()
    settle(store)
    if (bundle / "manifest.json").is_file():
        run, version = _registered(bundle, options.provider, store)
        if version is None:
            return 1
    else:
        run = find_run(options.target, store)
    before, now = registry.promote(run, version)
    serve = shlex.join(["mlflow", "models", "serve", "-m", now.uri, "--env-manager", "local"])
    next_command = f"MLFLOW_TRACKING_URI={shlex.quote(run.store.uri)} {serve}"
    print(f"Champion of {now.model}: {now}; before: {before or 'none'} · next: {next_command}")
    return 0


def _registered(bundle: Path, provider: Any, store: Store) -> tuple[TrackedRun, Version | None]:
    """Proves a bundle and registers it. Returns its run and its version of the run's model. If the proof fails, prints
    the report and returns None as the version.

    Raises:
        ValueError: the bundle has no run, or its run is not in the store.
    """
    from seqlab.tracking.registry import register
    from seqlab.tracking.runs import find_run
    from seqlab_export.runner.files import sha256_of
    from seqlab_export.runner.manifest import FILE_NAME, load_manifest
    from seqlab_export.serving.mlflow_model import save_model

    manifest = load_manifest(bundle)
    if not (run_id := manifest.provenance.run_id):
        raise ValueError(f"{bundle} has no run, and only a run's bundle can become a version of a model")
    run, report = find_run(run_id, store), _proven(bundle, provider)
    if not report.ok:
        from rich.console import Console

        Console().print(report.table())
        return run, None
    save = partial(save_model, bundle, report=report.to_dict(), provider=provider)
    return run, register(run, manifest.precision, manifest.target, sha256_of(bundle / FILE_NAME), save)


@verb(
    "prove a bundle on this machine; exit code 1 if a check fails",
    argument("bundle", metavar="DIR", help="bundle folder"),
    argument("--json", action="store_true", help="print the report as JSON"),
    argument("--all", action="store_true", help="on every runtime installed here, including PyTorch"),
    argument("--seconds", type=decimal, metavar="S", help="time limit of the proof in seconds; default: 3600"),
    PROVIDER,
)
def verify(options: argparse.Namespace) -> int:
    bundle = Path(options.bundle)
    limits = {} if options.seconds is None else {"seconds": options.seconds}
    if options.all:
        return _verify_everywhere(bundle, as_json=options.json, **limits)
    report = _proven(bundle, options.provider, **limits)
    if options.json:
        print(dumps(report.to_dict(), indent=2))
    else:
        from rich.console import Console

        Console().print(report.table())
    return 0 if report.ok else 1


def _proven(bundle: Path, provider: Any, **limits: float) -> Report:
    from seqlab.cli.phases import phases_shown
    from seqlab_export.runner.memory_wall import memory_wall
    from seqlab_export.runner.sessions import PROVIDERS
    from seqlab_export.runner.verify import verify_bundle

    wall = memory_wall(bundle) if PROVIDERS[provider].on_cpu else contextlib.nullcontext()
    with wall, phases_shown("reading the bundle"):
        return verify_bundle(bundle, provider=provider, **limits)


def _verify_everywhere(bundle: Path, *, as_json: bool, **limits: float) -> int:
    from seqlab.trained.load import load_run
    from seqlab_export.reports.parity import parity_of_bundle, to_json
    from seqlab_export.reports.parity_page import show
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
