"""What each verb of the `seqlab` command does. Each imports what it needs when it runs.

A verb takes its parsed options and returns the exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.decoding.translate import SourceReader
    from seqlab.tracking.load import LoadedRun

LINES_AT_ONCE = 64


def lightning(verb: str, args: list[str], *, run_id: str | None = None) -> int:
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


def configs(options: argparse.Namespace) -> int:
    from seqlab.training.config import config_names, config_path, config_summary

    if options.name:
        print(config_path(options.name).read_text(encoding="utf-8"), end="")
        return 0
    width = max(map(len, config_names()))
    for name in config_names():
        print(f"{name:{width}}  {config_summary(name)}")
    return 0


def resume(options: argparse.Namespace) -> int:
    from seqlab.tracking.runs import find_run
    from seqlab.training.config import check_trust

    run = find_run(options.target)
    check_trust(run.config, options.trust)
    if run.last_checkpoint is None:
        raise ValueError(f"run {run.name} has no checkpoint to continue from")
    stored = f"--config={json.dumps(run.config)}"
    args = [stored, f"--ckpt_path={run.last_checkpoint}", *options.overrides]
    return lightning("fit", args, run_id=run.id)


def compare(options: argparse.Namespace) -> int:
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


def ui(options: argparse.Namespace) -> int:
    from seqlab.tracking.server import ui

    return ui(port=options.port)


def import_hf(options: argparse.Namespace) -> int:
    from seqlab.training import import_hf

    name = import_hf.import_hf(Path(options.folder), experiment=options.experiment, run_name=options.run_name)
    print(f'Run {name} · next: seqlab generate {name} --prompt "..."')
    return 0


def export(options: argparse.Namespace) -> int:
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
            source_tokenizer=loaded.source_tokenizer,
            labels=loaded.labels,
            seq_len=loaded.task.seq_len,
            provider=options.provider,
            precision=options.precision,
        )
    except ParityError as error:
        Console().print(error.report.table())
        print(f"seqlab: {error}", file=sys.stderr)
        return 1
    _attach(report.to_dict(), loaded.run_id)
    Console().print(report.table())
    print(f"Bundle {out} · next: {_next_command(out)}")
    return 0


def _next_command(bundle: Path) -> str:
    from seqlab_export.manifest import load_manifest

    manifest = load_manifest(bundle)
    if manifest.model is None:
        return f"seqlab {'classify' if manifest.labels and manifest.tokenizer else 'verify'} {bundle}"
    return f'seqlab generate {bundle} --prompt "..."' if manifest.encoder is None else f"seqlab translate {bundle}"


def verify(options: argparse.Namespace) -> int:
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


def conformance(options: argparse.Namespace) -> int:
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
    failed = sum(cell.failed is not None for row in rows for cell in row.cells.values())
    print(f"{len(rows)} pairs, {failed} cells failed: {out / 'conformance.md'}, {out / 'conformance.json'}")
    return 1 if failed else 0


def _chosen(names: list[str] | None, known: dict[str, Any]) -> dict[str, Any]:
    unknown = [name for name in names or [] if name not in known]
    if unknown:
        raise ValueError(f"there is no {unknown[0]}; accepted: {'; '.join(known)}")
    return {name: known[name] for name in names or known}


def generate(options: argparse.Namespace) -> int:
    from seqlab.decoding import Decoder, Repetition, Sampling, generate_text

    sampling = Sampling(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        seed=options.seed,
    )
    repetition = Repetition(penalty=options.repetition_penalty, ngram=options.no_repeat_ngram)
    decoder: Decoder
    if _is_bundle(options.target):
        from seqlab_export.runner import BundleRunner

        decoder = runner = BundleRunner(Path(options.target), provider=options.provider)
        tokenizer = runner.tokenizer
    else:
        from seqlab.decoding.torch_model import TorchDecoder
        from seqlab.models import DecoderLM
        from seqlab.tracking.load import load_run

        loaded = load_run(options.target, trust=options.trust)
        _check_model(loaded, DecoderLM, "generate continues a prompt")
        decoder, tokenizer = TorchDecoder(loaded.model), loaded.tokenizer

    def show(piece: str) -> None:
        print(piece, end="", flush=True)

    generate_text(
        decoder,
        tokenizer,
        options.prompt,
        max_new_tokens=options.max_new_tokens,
        sampling=sampling,
        repetition=repetition,
        on_text=show,
    )
    print()
    return 0


def _is_bundle(target: str) -> bool:
    return (Path(target) / "manifest.json").is_file()


def translate(options: argparse.Namespace) -> int:
    from seqlab.decoding import Repetition
    from seqlab.decoding.translate import translate

    if options.n_best is not None and not 1 <= options.n_best <= options.beams:
        raise ValueError(f"--n-best must be from 1 to the number of beams, {options.beams}; got {options.n_best}")
    repetition = Repetition(penalty=options.repetition_penalty, ngram=options.no_repeat_ngram)
    reader = _source_reader(options)
    lines = (line.rstrip("\n") for line in sys.stdin)
    numbers = itertools.count(1)
    while texts := list(itertools.islice(lines, LINES_AT_ONCE)):
        written = translate(
            reader,
            texts,
            beams=options.beams,
            length_penalty=options.length_penalty,
            repetition=repetition,
            prefix=options.prefix,
        )
        for best, number in zip(written, numbers, strict=False):
            if options.n_best is None:
                print(best[0])
            else:
                print("\n".join(f"{number}\t{text}" for text in best[: options.n_best]))
        sys.stdout.flush()
    return 0


def _source_reader(options: argparse.Namespace) -> SourceReader:
    from seqlab.decoding.translate import SourceReader

    if _is_bundle(options.target):
        from seqlab_export.runner import BundleRunner

        runner = BundleRunner(Path(options.target), provider=options.provider)
        longest = runner.manifest.seq_len
        return SourceReader(runner.begin, runner.source_tokenizer, runner.tokenizer, longest)
    from seqlab.decoding.torch_model import TorchDecoder
    from seqlab.models import EncoderDecoder, RNNSeq2Seq
    from seqlab.tracking.load import load_run

    loaded = load_run(options.target, trust=options.trust)
    _check_model(loaded, (EncoderDecoder, RNNSeq2Seq), "translate reads sources")
    begin = partial(TorchDecoder.begin, loaded.model)
    return SourceReader(begin, loaded.source_tokenizer, loaded.tokenizer, loaded.task.seq_len)


def classify(options: argparse.Namespace) -> int:
    probabilities, labels = _classifier(options)
    for number, line in enumerate(sys.stdin, start=1):
        text = line.rstrip("\n")
        if not text.strip():
            raise ValueError(f"line {number} of the standard input is empty; give one text a line")
        found = probabilities(text)
        if found.ndim > 1:
            tagged = zip(text.split(), found.argmax(axis=-1).tolist(), strict=True)
            print("".join(f"{word}\t{labels[place]}\n" for word, place in tagged), flush=True)
        else:
            print(f"{labels[int(found.argmax())]}\t{found.max():.4f}", flush=True)
    return 0


def _classifier(options: argparse.Namespace) -> tuple[Callable[[str], Any], Sequence[str]]:
    """What gives the probabilities of a text's classes, or of those of each of its words; and their names."""
    if _is_bundle(options.target):
        from seqlab_export.runner import Bundle

        bundle = Bundle(Path(options.target), provider=options.provider)
        if bundle.manifest.model is not None or not bundle.manifest.labels:
            raise ValueError(f"classify reads texts: it needs a bundle with classes, {options.target} has none")
        return bundle.probabilities, bundle.manifest.labels
    import torch

    from seqlab.models import BagOfWords, Classifier, Tagger
    from seqlab.tracking.load import load_run

    loaded = load_run(options.target, trust=options.trust)
    _check_model(loaded, (BagOfWords, Classifier, Tagger), "classify reads texts")
    if loaded.tokenizer is None:
        raise ValueError("classify reads texts: it needs a run that was trained on some, this one reads features")

    @torch.inference_mode()
    def probabilities(text: str) -> Any:
        return loaded.model(torch.tensor([loaded.tokenizer.encode(text)])).softmax(dim=-1)[0].numpy()

    return probabilities, loaded.labels


def _check_model(loaded: LoadedRun, wanted: type | tuple[type, ...], what: str) -> None:
    """Raises ValueError where a run's model is of another kind than a verb is for."""
    if not isinstance(loaded.model, wanted):
        names = " or ".join(cls.__name__ for cls in (wanted if isinstance(wanted, tuple) else (wanted,)))
        raise ValueError(f"{what}: it needs the run of a {names}, this one is of a {type(loaded.model).__name__}")
