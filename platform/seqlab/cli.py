"""The `seqlab` command. Each verb imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from seqlab import __version__

LIGHTNING_VERBS = {
    "fit": "train a model",
    "validate": "evaluate a trained model on the validation split",
    "test": "evaluate a trained model on the test split",
    "predict": "write a trained model's predictions for the test split",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command. Exit codes: 0 done, 1 a proof that failed, 2 bad input, told in one sentence."""
    args = sys.argv[1:] if argv is None else argv
    # As `python -m` does, so that a class path may name a module of the working folder.
    sys.path.append(os.getcwd())
    try:
        if args and args[0] in LIGHTNING_VERBS:
            return _lightning(args[0], args[1:])
        options, overrides = _parser().parse_known_args(args)
        if overrides and options.verb != "resume":
            raise ValueError(f"{options.verb} has no option {overrides[0]}; see seqlab {options.verb} --help")
        options.overrides = overrides
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has had enough, as in `seqlab compare | head`; Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        if os.environ.get("SEQLAB_DEBUG"):
            raise
        from seqlab.training.errors import sentence

        print(f"seqlab: {sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _lightning(verb: str, args: list[str], *, run_id: str | None = None) -> int:
    from seqlab.training.config import resolve_names
    from seqlab.training.quiet import quiet

    args = resolve_names(args)
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from seqlab.training.fit import SeqlabCLI

    quiet()
    try:
        SeqlabCLI(verb, args, run_id=run_id)
    except MisconfigurationException as error:
        raise ValueError(str(error)) from error
    return 0


def _configs(options: argparse.Namespace) -> int:
    from seqlab.training.config import config_names, config_path, config_summary

    if options.name:
        print(config_path(options.name).read_text(encoding="utf-8"), end="")
        return 0
    width = max(map(len, config_names()))
    for name in config_names():
        print(f"{name:{width}}  {config_summary(name)}")
    return 0


def _resume(options: argparse.Namespace) -> int:
    from seqlab.tracking.runs import find_run
    from seqlab.training.config import check_trust

    run = find_run(options.target)
    check_trust(run.config, options.trust)
    if run.last_checkpoint is None:
        raise ValueError(f"run {run.name} has no checkpoint to continue from")
    stored = f"--config={json.dumps(run.config)}"
    args = [stored, f"--ckpt_path={run.last_checkpoint}", *options.overrides]
    return _lightning("fit", args, run_id=run.id)


def _compare(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.tracking.comparison import compare

    result = compare(
        options.runs or None,
        experiment=options.experiment,
        metric=options.metric,
        tokens=options.tokens,
        price=options.price,
    )
    if options.quiet:
        print("\n".join(run.id for run in result.runs))
    else:
        Console().print(result.table())
    if options.out:
        result.write_report(Path(options.out))
        print(f"Report: {options.out}", file=sys.stderr)
    return 0


def _ui(options: argparse.Namespace) -> int:
    from seqlab.tracking.server import ui

    return ui(port=options.port)


def _import_hf(options: argparse.Namespace) -> int:
    from seqlab.training.import_hf import import_hf

    name = import_hf(Path(options.folder), experiment=options.experiment, run_name=options.run_name)
    print(f'Run {name} · next: seqlab generate {name} --prompt "..."')
    return 0


def _export(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.tracking.load import load_run
    from seqlab_export.bundle import ParityError, export_bundle

    loaded = load_run(options.target, trust=options.trust)
    out = Path(options.out)
    try:
        report = export_bundle(
            loaded.model,
            loaded.tokenizer,
            out,
            run_id=loaded.run_id or "",
            commit=loaded.commit or "",
            provider=options.provider,
            precision=options.precision,
        )
    except ParityError as error:
        Console().print(error.report.table())
        print(f"seqlab: {error}", file=sys.stderr)
        return 1
    _attach(report.to_dict(), loaded.run_id)
    Console().print(report.table())
    print(f'Bundle {out} · next: seqlab generate {out} --prompt "..."')
    return 0


def _verify(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab_export.manifest import load_manifest
    from seqlab_export.verify import verify_bundle

    report = verify_bundle(Path(options.bundle), provider=options.provider)
    _attach(report.to_dict(), load_manifest(Path(options.bundle)).provenance.run_id)
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        Console().print(report.table())
    return 0 if report.ok else 1


def _attach(report: dict[str, Any], run_id: str | None) -> None:
    """Adds a parity report to the run's artifacts, where the run is in this store."""
    from seqlab.tracking.runs import find_run
    from seqlab.tracking.store import Store

    if not run_id or not Store().exists:
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ValueError):
        path = Path(folder) / "parity.json"
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        find_run(run_id).attach(path)


def _conformance(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqlab.training.quiet import quiet
    from seqlab_export.conformance import Row, all_mixers, all_positions, conformance, to_json, to_markdown

    quiet()
    chosen = _chosen(options.mixers, all_mixers()), _chosen(options.positions, all_positions())
    console = Console(stderr=True)

    def show(row: Row) -> None:
        cells = [str(cell) for cell in row.cells.values()]
        shown = cells[:1] if len(set(cells)) == 1 else [f"{name} {cell}" for name, cell in row.cells.items()]
        console.print(f"{row.mixer} with {row.positions}: {', '.join(shown)}", soft_wrap=True)

    rows = conformance(*chosen, on_row=show)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "conformance.md").write_text(to_markdown(rows), encoding="utf-8")
    (out / "conformance.json").write_text(json.dumps(to_json(rows), indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows)} pairs: {out / 'conformance.md'}, {out / 'conformance.json'}")
    return 0


def _chosen(names: list[str] | None, known: dict[str, Any]) -> dict[str, Any]:
    unknown = [name for name in names or [] if name not in known]
    if unknown:
        raise ValueError(f"there is no {unknown[0]}; accepted: {'; '.join(known)}")
    return {name: known[name] for name in names or known}


def _generate(options: argparse.Namespace) -> int:
    from seqlab.decoding import Decoder, Sampling, generate_text

    sampling = Sampling(temperature=options.temperature, top_k=options.top_k, top_p=options.top_p, seed=options.seed)
    decoder: Decoder
    if (Path(options.target) / "manifest.json").is_file():
        from seqlab_export.runner import BundleRunner

        decoder = runner = BundleRunner(Path(options.target), provider=options.provider)
        tokenizer = runner.tokenizer
    else:
        from seqlab.decoding.torch_model import TorchDecoder
        from seqlab.tracking.load import load_run

        loaded = load_run(options.target, trust=options.trust)
        decoder, tokenizer = TorchDecoder(loaded.model), loaded.tokenizer

    def show(piece: str) -> None:
        print(piece, end="", flush=True)

    generate_text(
        decoder,
        tokenizer,
        options.prompt,
        max_new_tokens=options.max_new_tokens,
        sampling=sampling,
        on_text=show,
    )
    print()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seqlab",
        description="Compare sequence models, track every run, ship the winner. "
        "A RUN is an id, a unique prefix of one, a name or a checkpoint.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, description in LIGHTNING_VERBS.items():
        verbs.add_parser(name, help=description, add_help=False)

    verb = verbs.add_parser("configs", help="list the packaged configs, or print one")
    verb.add_argument("name", nargs="?", metavar="NAME")
    verb.set_defaults(run=_configs)

    verb = verbs.add_parser("compare", help="table of runs, sorted by a metric")
    verb.add_argument("runs", nargs="*", metavar="RUN", help="default: every run of the experiment")
    verb.add_argument("--experiment", metavar="NAME")
    verb.add_argument("--metric", default="val/loss", metavar="M", help="default: val/loss")
    verb.add_argument("--tokens", type=float, metavar="N", help="add the days to train on N tokens")
    verb.add_argument("--price", type=float, metavar="P", help="add the cost at P an hour")
    verb.add_argument("--out", metavar="FILE.html", help="write a report with curves and quality against cost")
    verb.add_argument("-q", "--quiet", action="store_true", help="print run ids only, the best first")
    verb.set_defaults(run=_compare)

    verb = verbs.add_parser("ui", help="open MLflow on the store, on this machine only")
    verb.add_argument("--port", type=int, default=5000)
    verb.set_defaults(run=_ui)

    verb = verbs.add_parser("resume", help="continue a run where its last checkpoint is")
    verb.add_argument("target", metavar="RUN")
    _add_trust(verb)
    verb.set_defaults(run=_resume)

    verb = verbs.add_parser("import-hf", help="make a run of a GPT-2 or Llama checkpoint folder")
    verb.add_argument("folder", metavar="PATH")
    verb.add_argument("--experiment", default="imported", metavar="NAME")
    verb.add_argument("--run_name", metavar="NAME", help="default: the folder's name")
    verb.set_defaults(run=_import_hf)

    verb = verbs.add_parser("export", help="write a run as an ONNX bundle that is proven equal to it")
    verb.add_argument("target", metavar="RUN")
    verb.add_argument("--out", required=True, metavar="DIR")
    verb.add_argument("--precision", default="fp32", choices=["fp32", "fp16", "bf16"])
    _add_provider(verb)
    _add_trust(verb)
    verb.set_defaults(run=_export)

    verb = verbs.add_parser("verify", help="prove a bundle again; exit code 1 if it fails")
    verb.add_argument("bundle", metavar="DIR")
    verb.add_argument("--json", action="store_true", help="print the report as JSON")
    _add_provider(verb)
    verb.set_defaults(run=_verify)

    verb = verbs.add_parser("conformance", help="measure every mixer with every positional encoding")
    verb.add_argument("--mixers", nargs="+", metavar="NAME", help="default: all")
    verb.add_argument("--positions", nargs="+", metavar="NAME", help="default: all")
    verb.add_argument("--out", default="docs", metavar="DIR", help="folder of conformance.md and .json; default: docs")
    verb.set_defaults(run=_conformance)

    verb = verbs.add_parser("generate", help="continue a prompt with a run or a bundle")
    verb.add_argument("target", metavar="RUN|BUNDLE")
    verb.add_argument("--prompt", default="", metavar="TEXT")
    verb.add_argument("--max-new-tokens", type=int, default=200, metavar="N")
    verb.add_argument("--temperature", type=float, default=1.0, metavar="X", help="0 is greedy; default: 1")
    verb.add_argument("--top-k", type=int, metavar="K", help="choose among the K likeliest")
    verb.add_argument("--top-p", type=float, default=1.0, metavar="P", help="choose among the likeliest that make up P")
    verb.add_argument("--seed", type=int, default=0, metavar="N")
    _add_provider(verb)
    _add_trust(verb)
    verb.set_defaults(run=_generate)
    return parser


def _add_provider(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--provider", default="cpu", choices=["cpu", "cuda"], help="onnxruntime's device")


def _add_trust(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="MODULE",
        help="let a stored config import this module",
    )
