"""Short help for fit and the other Lightning verbs; fast, because it does not import their code."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from textwrap import shorten
from typing import Any

from seqlab.config.configs import LINKS, instead, read_config
from seqlab.config.options import options

TRAINER = {
    "max_steps": "optimiser steps; -1 = no limit",
    "max_epochs": "passes over the training data",
    "max_time": "time limit, DD:HH:MM:SS",
    "accelerator": "cpu, gpu, auto",
    "devices": "number of devices, or auto",
    "strategy": "ddp, fsdp2, tp, fsdp2+tp, ...",
    "precision": "32-true, bf16-mixed, 16-mixed, ...",
    "accumulate_grad_batches": "batches per optimiser step",
    "gradient_clip_val": "maximum gradient norm",
    "val_check_interval": "steps (or share of an epoch) between validations",
    "limit_val_batches": "batches per validation",
    "callbacks": "class, e.g. AttentionMaps; += adds one",
    "fast_dev_run": "run a few batches of each split; store nothing",
}
"""Most used options of Lightning's Trainer."""

EVALUATES = ("accelerator", "devices", "precision", "callbacks")
"""Trainer options relevant to the other verbs."""

PARTS = {"data": "LightningDataModule", "model": "LightningModule"}
"""Base class of each part of a config that is chosen by its class."""

ONLY = {"lora": "Lora"}
"""Options whose value has one class, with this class."""

BUILT = json.loads(Path(__file__).with_name("help.json").read_text(encoding="utf-8"))
CLASSES: dict[str, Any] = BUILT["classes"]
ACCEPTED: dict[str, list[str]] = BUILT["accepted"]


def show_help(verb: str, description: str, args: list[str]) -> None:
    """Prints the help; for `--model.model.mixer.help [CLASS]`, the accepted classes or the options of one class."""
    config = _chosen(args)
    for place, arg in enumerate(args):
        key, _, name = arg.removeprefix("--").partition("=")
        if key.endswith(".help"):
            key, following = key.removesuffix(".help"), args[place + 1 : place + 2]
            given = "" if not following or following[0].startswith("-") else following[0]
            _show_class(key, (name or ONLY.get(key) or given).rpartition(".")[2], config)
            return
    fits = verb == "fit"
    usage = "--config NAME|PATH" if fits else "RUN"
    parser = _parser(f"seqlab {verb}", f"{description[0].upper()}{description[1:]}.", f"{usage} [--OPTION VALUE ...]")
    own = parser.add_argument_group("seqlab")
    own.add_argument("--config", metavar="NAME|PATH", help="a packaged config (seqlab configs lists them) or a file")
    for option in options(verb) if fits else options(verb)[len(options("fit")) :]:
        own.add_argument(f"--{option.name}", metavar=_written(option.default), help=_escaped(option.help))
    own.add_argument("--ckpt_path", metavar="RUN", help="run or checkpoint to evaluate or to continue")
    own.add_argument("--seed_everything", metavar="0", help="seed of weights and dropout (of batches: data.seed)")
    trainer = parser.add_argument_group("trainer", "The most used options of Lightning's Trainer.")
    values = config.get("trainer") or {}
    for name, text in TRAINER.items():
        if not fits and name not in EVALUATES:
            continue
        trainer.add_argument(f"--trainer.{name}", metavar=_written(values.get(name, "VALUE")), help=_escaped(text))
    for key in PARTS:
        if config.get(key) is not None:
            _add_class(parser, key, config[key])
    parser.epilog = (
        f"The values shown are those in effect. `seqlab {verb} --config lm/gru --help` adds the options of the classes "
        "that a config chooses; `--model.model.mixer.help` lists the classes accepted there, and "
        "`--model.model.mixer.help GRU` the options of that class; `--help all` lists every option."
    )
    parser.print_help()


def _show_class(key: str, name: str, config: dict[str, Any]) -> None:
    accepted = [] if name in CLASSES else _accepted(key, config)
    if name and name not in CLASSES:
        raise ValueError(f"--{key}.help: seqlab has no class {name}; {instead(name, accepted)}")
    if not name and not accepted:
        raise ValueError(f"--{key}.help: it is not an option that takes a class, or needs a --config before it")
    parser = _parser("seqlab", "", "")
    if name:
        _add_class(parser, key, name, deep=False)
    else:
        group = parser.add_argument_group(
            f"--{key} CLASS", "Another class of that kind is accepted by its import path."
        )
        for choice in accepted:
            group.add_argument(choice, help=_escaped(shorten(CLASSES[choice]["summary"], 100, placeholder=" ...")))
    print(parser.format_help().partition("\n\n")[2], end="")


def _accepted(key: str, config: dict[str, Any]) -> list[str]:
    """Classes that an option accepts."""
    part, *names = key.split(".")
    accepts, value = PARTS.get(part), config.get(part)
    for name in names:
        chosen, given = _class_of(value)
        argument = CLASSES.get(chosen, {}).get("arguments", {}).get(name, {})
        accepts, value = argument.get("accepts"), given.get(name, argument.get("default"))
    return ACCEPTED.get(accepts or "", [])


def _add_class(parser: argparse.ArgumentParser, key: str, value: Any, *, deep: bool = True) -> None:
    name, given = _class_of(value)
    if name not in CLASSES:
        return
    given_by_data = LINKS if key.startswith("model") else ()
    arguments = {option: one for option, one in CLASSES[name]["arguments"].items() if option not in given_by_data}
    held = {option: given.get(option, one["default"]) for option, one in arguments.items()}
    if arguments or not deep:
        group = parser.add_argument_group(f"--{key} {name}", _escaped(CLASSES[name]["summary"]))
    for option, one in arguments.items():
        group.add_argument(f"--{key}.{option}", metavar=_written(held[option]), help=_escaped(one["help"]))
    for option, one in arguments.items():
        if deep and "accepts" in one:
            _add_class(parser, f"{key}.{option}", held[option])


def _class_of(value: Any) -> tuple[str, dict[str, Any]]:
    """Class name and options of a config value; of the first entry if the value is a list."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict):
        return str(value.get("class_path", "")).rpartition(".")[2], value.get("init_args") or {}
    return str(value).rpartition(".")[2], {}


def _chosen(args: list[str]) -> dict[str, Any]:
    """Config from the `--config` files and the options on the command line."""
    config: dict[str, Any] = {}
    for place, arg in enumerate(args):
        key, equals, value = arg.removeprefix("--").partition("=")
        value = value if equals else "".join(args[place + 1 : place + 2])
        if key in ("config", "-c"):
            config |= read_config(value)
        elif arg.startswith("--") and not value.startswith("--") and not key.endswith("help"):
            _set(config, key.split("."), value)
    return config


def _set(config: dict[str, Any], keys: list[str], value: str) -> None:
    if keys[0] in PARTS:  # each key below is an option of a class
        keys = [keys[0], *(key for name in keys[1:] if name != "init_args" for key in ("init_args", name))]
    node: Any = config
    for key in keys[:-1]:
        if isinstance(node.get(key), str):
            node[key] = {"class_path": node[key]}
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            return
    node[keys[-1]] = value


def _parser(prog: str, description: str, usage: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} {usage}",
        description=description,
        add_help=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=38),
    )


def _written(value: Any) -> str:
    """A value as typed on the command line, abbreviated."""
    if isinstance(value, dict):
        value = _class_of(value)[0]
    if isinstance(value, list):
        value = f"[{', '.join(map(_written, value))}]"
    text = {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
    return text if len(text) <= 24 else f"{text[:21]}..."


def _escaped(text: str) -> str:
    return re.sub(r"(?<!\.)\.$", "", text).replace("%", "%%")
