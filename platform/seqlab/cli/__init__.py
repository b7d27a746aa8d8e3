"""The `seqlab` command. Each verb imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from typing import NoReturn

from seqlab import __version__
from seqlab.cli import fitting, inference, release, verbs
from seqlab.working_folder import add_working_folder

LIGHTNING_VERBS = {
    "fit": "train a model",
    "validate": "evaluate a trained model on the validation split",
    "test": "evaluate a trained model on the test split",
    "predict": "write a trained model's predictions for the test split",
}
RUN = "an id, a unique beginning of one, a name or a checkpoint"
TAKE_OVERRIDES = ("resume", "validate", "test", "predict")

# A process that is spawned imports this file too, and then the classes that it is sent.
add_working_folder()


def main(argv: list[str] | None = None) -> int:
    """Runs one command. Exit codes: 0 done, 1 a proof that failed, 2 bad input, told in one sentence."""
    args = sys.argv[1:] if argv is None else argv
    try:
        _check_working_folder()
        if args and args[0] in LIGHTNING_VERBS:
            from seqlab.config.options import wants_help

            if wants_help(args[1:]):
                from seqlab.config.short_help import show_help

                show_help(args[0], LIGHTNING_VERBS[args[0]], args[1:])
                return 0
        if args and args[0] in LIGHTNING_VERBS and not _names_run(args):
            return fitting.lightning(args[0], args[1:])
        options, overrides = _parser().parse_known_args(args)
        if overrides and options.verb not in TAKE_OVERRIDES:
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
        from seqlab.config.errors import sentence

        # What a file says must not steer the terminal.
        said = "".join(letter if letter.isprintable() else " " for letter in sentence(error))
        print(f"seqlab: {said}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if os.environ.get("SEQLAB_DEBUG"):
            raise
        needed = f"the Python module {error.name}, which is not installed here" if error.name else error
        print(f"seqlab: this needs {needed}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _check_working_folder() -> None:
    """Libraries end the process, or with a traceback, where there is none."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ValueError("the working folder was deleted; change to one that is there") from None


def _names_run(args: list[str]) -> bool:
    """Whether one of Lightning's verbs is followed by a RUN, whose config it then takes."""
    return args[0] in TAKE_OVERRIDES and len(args) > 1 and not args[1].startswith("-")


class _Parser(argparse.ArgumentParser):
    """Raises its errors, for `main` to tell in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="seqlab",
        description="Compare sequence models, track every run, ship the winner. "
        "A RUN is an id, a unique prefix of one, a name or a checkpoint.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def add(name: str, does: str) -> argparse.ArgumentParser:
        return parsers.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")

    for name, description in LIGHTNING_VERBS.items():
        verb = parsers.add_parser(name, help=description, add_help=False)
        if name in TAKE_OVERRIDES:
            verb.add_argument("target", metavar="RUN", help=RUN)
            _add_trust(verb)
            verb.set_defaults(run=fitting.evaluate)

    verb = add("configs", "list the packaged configs, or print one")
    verb.add_argument("name", nargs="?", metavar="NAME", help="a config; default: list them")
    verb.set_defaults(run=verbs.configs)

    verb = add("compare", "table of runs, sorted by a metric")
    verb.add_argument("runs", nargs="*", metavar="RUN", help="default: every run of the experiment")
    verb.add_argument("--experiment", metavar="NAME", help="only its runs")
    verb.add_argument("--metric", default="val/loss", metavar="M", help="default: val/loss")
    verb.add_argument("--tokens", type=_decimal, metavar="N", help="add the days to train on N tokens")
    verb.add_argument("--price", type=_decimal, metavar="P", help="add the cost at P an hour")
    verb.add_argument("--out", metavar="FILE.html", help="write a report with curves and quality against cost")
    verb.add_argument("-q", "--quiet", action="store_true", help="print run ids only, the best first")
    verb.set_defaults(run=verbs.compare)

    verb = add("ui", "open MLflow on the store, on this machine only")
    verb.add_argument("--port", type=_whole, default=5000, metavar="N", help="default: 5000")
    verb.set_defaults(run=verbs.ui)

    verb = add("resume", "continue a run where its last checkpoint is")
    verb.add_argument("target", metavar="RUN", help=RUN)
    _add_trust(verb)
    verb.set_defaults(run=fitting.resume)

    verb = add("import-hf", "make a run of a GPT-2, Llama, Mistral, Qwen2 or Qwen3 checkpoint folder")
    verb.add_argument("folder", metavar="PATH", help="with config.json and its weights")
    verb.add_argument("--experiment", default="imported", metavar="NAME", help="default: imported")
    verb.add_argument("--run_name", metavar="NAME", help="default: the folder's name")
    verb.set_defaults(run=verbs.import_hf)

    verb = add("export", "write a run as an ONNX bundle that is proven equal to it")
    verb.add_argument("target", metavar="RUN", help=RUN)
    verb.add_argument("--out", required=True, metavar="DIR", help="a folder that is not there yet")
    verb.add_argument("--format", default="bundle", choices=["bundle", "triton"], help="triton: a model repository")
    verb.add_argument(
        "--precision",
        default="fp32",
        choices=["fp32", "fp16", "bf16", "int8", "int4"],
        help="of the weights; in bf16 they take half the space, and arithmetic is that of fp32; default: fp32",
    )
    verb.add_argument(
        "--target",
        dest="graphs",
        default="portable",
        choices=["portable", "ort", "cuda-graph"],
        help="ort has onnxruntime's own nodes; cuda-graph a step that a CUDA graph can record; default: portable",
    )
    verb.add_argument(
        "--taps",
        type=lambda names: names.split(","),
        default=[],
        metavar="attention,state",
        help="add a debug twin that gives attention weights and hidden states",
    )
    _add_provider(verb)
    _add_trust(verb)
    verb.set_defaults(run=verbs.export)

    verb = add("promote", "make a run's newest bundle the champion of its experiment's model")
    verb.add_argument("target", metavar="RUN", help=RUN)
    verb.set_defaults(run=release.promote)

    verb = add("verify", "prove a bundle again; exit code 1 if it fails")
    verb.add_argument("bundle", metavar="DIR", help="a bundle's folder")
    verb.add_argument("--json", action="store_true", help="print the report as JSON")
    verb.add_argument("--all", action="store_true", help="on every runtime here, PyTorch too")
    _add_provider(verb)
    verb.set_defaults(run=verbs.verify)

    verb = add("parity", "prove models in every precision on every runtime")
    verb.add_argument("--models", nargs="+", required=True, metavar="CONFIG", help="configs, untrained, or runs")
    verb.add_argument(
        "--precisions",
        nargs="+",
        default=["fp32", "fp16", "bf16", "int8", "int4"],
        metavar="NAME",
        help="default: all of fp32, fp16, bf16, int8, int4",
    )
    verb.add_argument("--out", metavar="DIR", help="folder of parity.md and parity.json; default: they are not written")
    _add_trust(verb)
    verb.set_defaults(run=verbs.parity)

    verb = add("conformance", "measure every mixer with every positional encoding")
    verb.add_argument("--mixers", nargs="+", metavar="NAME", help="also class paths of your own; default: all")
    verb.add_argument("--positions", nargs="+", metavar="NAME", help="also class paths of your own; default: all")
    verb.add_argument("--out", metavar="DIR", help="folder of conformance.md and .json; default: not written")
    verb.set_defaults(run=verbs.conformance)

    verb = add("generate", "continue a prompt with a run or a bundle")
    verb.add_argument("target", metavar="RUN|BUNDLE", help=f"{RUN}, or a bundle's folder")
    verb.add_argument("--prompt", default="", metavar="TEXT", help="or ids, where there is no tokenizer")
    verb.add_argument("--max-new-tokens", type=_whole, default=200, metavar="N", help="default: 200")
    verb.add_argument("--temperature", type=_decimal, default=1.0, metavar="X", help="0 is greedy; default: 1")
    verb.add_argument("--top-k", type=_whole, metavar="K", help="choose among the K likeliest")
    verb.add_argument(
        "--top-p", type=_decimal, default=1.0, metavar="P", help="choose among the likeliest that make up P"
    )
    verb.add_argument(
        "--min-p", type=_decimal, default=0.0, metavar="P", help="choose among those P times the likeliest"
    )
    verb.add_argument("--seed", type=_whole, default=0, metavar="N", help="of the draws; default: 0")
    _add_repetition(verb)
    _add_provider(verb)
    _add_trust(verb)
    verb.set_defaults(run=inference.generate)

    verb = add("translate", "write the target of each line of standard input")
    verb.add_argument("target", metavar="RUN|BUNDLE", help=f"{RUN}, or a bundle's folder")
    verb.add_argument("--beams", type=_whole, default=1, metavar="K", help="1 is greedy; default: 1")
    verb.add_argument("--length-penalty", type=_decimal, default=1.0, metavar="X", help="0 prefers short; default: 1")
    verb.add_argument("--n-best", type=_whole, metavar="N", help="print the N best of each line, after its number")
    verb.add_argument("--prefix", default="", metavar="TEXT", help="each target begins with it")
    _add_repetition(verb)
    _add_provider(verb)
    _add_trust(verb)
    verb.set_defaults(run=inference.translate)

    verb = add("classify", "print each line of standard input's class and probability, or its tags")
    verb.add_argument("target", metavar="RUN|BUNDLE", help=f"{RUN}, or a bundle's folder")
    _add_provider(verb)
    _add_trust(verb)
    verb.set_defaults(run=inference.classify)
    return parser


def _whole(text: str) -> int:
    """In digits, as `seqlab-run` takes them; Python would take 1_000, and digits of any script."""
    if not re.fullmatch("-?[0-9]+", text):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(text)


def _decimal(text: str) -> float:
    if not re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return float(text)


def _add_repetition(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--repetition-penalty", type=_decimal, default=1.0, metavar="X", help="above 1 avoids repetition")
    verb.add_argument("--no-repeat-ngram", type=_whole, metavar="N", help="write no sequence of N tokens twice")


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
