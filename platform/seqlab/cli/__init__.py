"""The `seqlab` command. Verbs import their dependencies when they run, so that `--help` is fast."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import NoReturn

from seqlab import __version__
from seqlab.cli import (
    bundle,
    env,
    estimate,
    fit,
    matrices,
    page,
    profile,
    runs,
    serve,
    spelling,
    study,
    submit,
    sweep,
    text,
)
from seqlab.cli.terminal import shown_for_people
from seqlab.files.working_folder import add_working_folder

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
    *serve.VERBS,
    *env.VERBS,
)

MAY_FETCH = ("estimate", "profile", "resume", "study", "submit", "sweep")
"""Verbs that may download a dataset. Other verbs read a dataset in a stored config only from this machine."""
MOST_SAID = 900
"""Maximum characters of an error message."""

# Spawned processes import this file too, and then unpickle classes from the working folder.
add_working_folder()


def main(argv: list[str] | None = None) -> int:
    """Runs one command. Exit codes: 0 success, 1 failed proof, 2 bad input, with a one-sentence message."""
    if not _has_output():
        return 2
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # for child processes
    with shown_for_people():
        return _ran(sys.argv[1:] if argv is None else argv)


def _correct_environment() -> None:
    """Drops empty entries of PYTHONPATH, which Python reads as the working folder, and a terminal width of 0."""
    paths = os.environ.get("PYTHONPATH", "")
    if "" in (entries := paths.split(os.pathsep)) and paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, entries))
        if os.getcwd() not in map(os.path.abspath, filter(None, entries)):
            sys.path[:] = [path for path in sys.path if path != os.getcwd()]
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]


def _ran(args: list[str]) -> int:
    try:
        _check_working_folder()
        _correct_environment()
        if args and args[0] in fit.LIGHTNING:
            code = fit.directly(args[0], [*map(spelling.as_lightning, args[1:])])
            if code is not None:
                return code
        end = args.index("--") if "--" in args else len(args)
        ours, behind = args[:end], args[end + 1 :]
        verb = next((verb for verb in VERBS if ours[:1] == [verb.name]), None)
        overrides: list[str] = []
        if verb is not None and verb.name in fit.TAKE_OVERRIDES:
            ours[1:], overrides = spelling.divided(verb, ours[1:])
        elif verb is not None:
            ours[1:] = map(spelling.as_ours, ours[1:])
        options, more = _parser().parse_known_args(ours)
        overrides += more + behind
        if verb is not None and overrides and verb.name not in fit.TAKE_OVERRIDES:
            raise spelling.unknown(verb, overrides[0])
        options.overrides = overrides
        if verb is not None and verb.name not in MAY_FETCH and not any("hf:" in arg for arg in args):
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader closed the pipe, as in `seqlab compare | head`; Python would report it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        if os.environ.get("SEQLAB_DEBUG"):
            raise
        from seqlab.config.errors import sentence

        print(f"seqlab: {_folded(sentence(error).replace(chr(10), ' '))}", file=sys.stderr)
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
        sys.unraisablehook = lambda _: None  # libraries also fail in their exit handlers
        why = f"a library cannot be loaded: {error}" if isinstance(error, ImportError) else f"no memory left {error}"
        print(f"seqlab: {why.strip()}; `ulimit -v` and the machine's free memory are the limits", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if os.environ.get("SEQLAB_DEBUG") or "home directory" not in str(error):  # raised by pathlib and platformdirs
            raise
        print("seqlab: the user's home folder is unknown: set HOME, and use no path with ~", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _folded(said: str) -> str:
    """Shortens a long message by cutting its middle."""
    return said if len(said) <= MOST_SAID else f"{said[: MOST_SAID // 2]} ... {said[-MOST_SAID // 2 :]}"


def _has_output() -> bool:
    """Returns True if standard output is open. Opens the null device for closed streams; otherwise the next opened
    file would reuse their descriptors and receive printed text."""
    for stream, use in ((sys.stdin, os.O_RDONLY), (sys.stdout, os.O_WRONLY)):
        if stream is None:
            os.open(os.devnull, use)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    if sys.stdout is None:
        print(f"seqlab: standard output is closed; give it a file, such as {os.devnull}", file=sys.stderr)
    return sys.stdout is not None


def _check_working_folder() -> None:
    """Raises ValueError if the working folder was deleted, where libraries would exit or print a traceback."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ValueError("the working folder was deleted; change to an existing one") from None


class _Parser(argparse.ArgumentParser):
    """Raises errors as ValueError, which `main` prints in one sentence."""

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
        # Lightning's verbs have their own help.
        of_verb = parsers.add_parser(
            verb.name, help=verb.does, description=description, add_help=verb.name not in fit.LIGHTNING
        )
        for names, settings in verb.arguments:
            of_verb.add_argument(*names, **settings)
        of_verb.set_defaults(run=verb.run)
    return parser
