"""Spelling of options: hyphens and underscores are equivalent, and unknown options get a suggestion."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from seqlab.cli.verb import Verb
from seqlab.config.options import OPTIONS, PREDICT

OF_LIGHTNING = (
    *("config", "seed_everything", "trainer", "model", "data", "ckpt_path", "weights_only", "verbose"),
    *("return_predictions", "print_config", "print_shtab", "help", *(option.name for option in OPTIONS + PREDICT)),
)
"""First components of the options of `fit`, `validate`, `test` and `predict`."""


def as_ours(arg: str) -> str:
    """Argument with hyphens in its name if it is an option."""
    return _renamed(arg, lambda name: name.replace("_", "-"))


def as_lightning(arg: str) -> str:
    """Argument with underscores in its name if it is an option: in the first component, and in the second after
    `trainer.`. Later components may be the user's own keys."""

    def renamed(name: str) -> str:
        first, *rest = name.split(".")
        first = first.replace("-", "_")
        if first == "trainer" and rest:
            rest[0] = rest[0].replace("-", "_")
        return ".".join([first, *rest])

    return _renamed(arg, renamed)


def divided(verb: Verb, args: Iterable[str]) -> tuple[list[str], list[str]]:
    """Splits arguments into the verb's own and the options passed to `fit`, each with its value. argparse would read a
    value after a space as a positional argument.

    Raises:
        ValueError: an option is neither the verb's nor Lightning's.
    """
    names = [name for argument in verb.arguments for name in argument.names if name.startswith("--")]
    own: list[str] = []
    overrides: list[str] = []
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("--") or any(name.startswith(_name(as_ours(arg))) for name in (*names, "--help")):
            own.append(as_ours(arg))
            continue
        arg = as_lightning(arg)
        if _name(arg).removeprefix("--").partition(".")[0].removesuffix("+") not in OF_LIGHTNING:
            raise unknown(verb, arg, [f"--{name}" for name in OF_LIGHTNING])
        overrides.append(arg)
        if "=" not in arg and arg != "--print_config":
            overrides += itertools.islice(rest, 1)
    return own, overrides


def unknown(verb: Verb, arg: str, others: Iterable[str] = ()) -> ValueError:
    """Error for an option that a verb does not have."""
    from seqlab.config.configs import instead

    names = [name for argument in verb.arguments for name in argument.names if name.startswith("-")]
    near = instead(_name(arg), [*names, *others])
    hint = near if near.startswith("did you mean") else f"see seqlab {verb.name} --help"
    return ValueError(f"{verb.name} has no option {_name(arg)}; {hint}")


def _name(arg: str) -> str:
    return arg.partition("=")[0]


def _renamed(arg: str, rename: Callable[[str], str]) -> str:
    name, equals, value = arg.partition("=")
    return f"--{rename(name[2:])}{equals}{value}" if name.startswith("--") else arg
