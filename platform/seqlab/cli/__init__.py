"""The `seqlab` command. Each verb imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import argparse
import io
import itertools
import os
import signal
import sys
from typing import NoReturn

from seqlab import __version__
from seqlab.cli import bundle, env, estimate, fit, matrices, page, profile, runs, study, submit, sweep, text
from seqlab.working_folder import add_working_folder

VERBS = (
    *fit.VERBS,
    *submit.VERBS,
    *estimate.VERBS,
    *profile.VERBS,
    *sweep.VERBS,
    *study.VERBS,
    *runs.VERBS,
    *bundle.VERBS,
    *page.VERBS,
    *matrices.VERBS,
    *text.VERBS,
    *env.VERBS,
)

# A process that is spawned imports this file too, and then the classes that it is sent.
add_working_folder()


def main(argv: list[str] | None = None) -> int:
    """Runs one command. Exit codes: 0 done, 1 a proof that failed, 2 bad input, told in one sentence."""
    if not _has_output():
        return 2
    args = sys.argv[1:] if argv is None else argv
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # for processes that this one starts
    _write_whole()
    try:
        _check_working_folder()
        if args and args[0] in fit.LIGHTNING and (code := fit.directly(args[0], args[1:])) is not None:
            return code
        ours, behind = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        ours, overrides = _overrides(ours) if ours and ours[0] in fit.TAKE_OVERRIDES else (ours, [])
        options, unknown = _parser().parse_known_args(ours)
        overrides += unknown + behind
        if overrides and options.verb not in fit.TAKE_OVERRIDES:
            raise ValueError(f"{options.verb} has no option {overrides[0]}; see seqlab {options.verb} --help")
        options.overrides = overrides
        code = int(options.run(options))
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
    except (MemoryError, ImportError) as error:
        if os.environ.get("SEQLAB_DEBUG"):
            raise
        sys.unraisablehook = lambda _: None  # what libraries do at Python's end fails as well
        why = f"a library cannot be loaded: {error}" if isinstance(error, ImportError) else f"no memory left {error}"
        print(f"seqlab: {why.strip()}; `ulimit -v` and the machine's free memory are the limits", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if os.environ.get("SEQLAB_DEBUG") or "home directory" not in str(error):  # pathlib's, and platformdirs'
            raise
        print("seqlab: the user's home folder is not known: set HOME, and write no path with ~", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _write_whole() -> None:
    """Lets no character end the output: one that its encoding lacks is written as a backslash and its number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _has_output() -> bool:
    """Whether standard output is open. The null device takes the numbers of closed streams: the next file that is
    opened would, and get what is printed there."""
    for stream, use in ((sys.stdin, os.O_RDONLY), (sys.stdout, os.O_WRONLY)):
        if stream is None:
            os.open(os.devnull, use)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for as long as the process
    if sys.stdout is None:
        print(f"seqlab: standard output is closed; give it a file, such as {os.devnull}", file=sys.stderr)
    return sys.stdout is not None


def _check_working_folder() -> None:
    """Libraries end the process, or with a traceback, where there is none."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ValueError("the working folder was deleted; change to one that is there") from None


def _overrides(args: list[str]) -> tuple[list[str], list[str]]:
    """A verb's own arguments, and the options that it hands to `fit`, each with its value: argparse would take a value
    after a space for a positional argument of the verb."""
    names = [name for verb in VERBS if verb.name == args[0] for argument in verb.arguments for name in argument.names]
    own: list[str] = []
    overrides: list[str] = []
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("--") or any(name.startswith(arg.partition("=")[0]) for name in (*names, "--help")):
            own.append(arg)
            continue
        overrides.append(arg)
        if "=" not in arg and arg != "--print_config":
            overrides += itertools.islice(rest, 1)
    return own, overrides


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
    for verb in VERBS:
        description = f"{verb.does[0].upper()}{verb.does[1:]}."
        # The help of Lightning's verbs is not argparse's.
        of_verb = parsers.add_parser(
            verb.name, help=verb.does, description=description, add_help=verb.name not in fit.LIGHTNING
        )
        for names, settings in verb.arguments:
            of_verb.add_argument(*names, **settings)
        of_verb.set_defaults(run=verb.run)
    return parser
