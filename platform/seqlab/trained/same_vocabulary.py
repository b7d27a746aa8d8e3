"""Check that data have the vocabulary with which a checkpoint was trained, as its embeddings require."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqlab.config.configs import LINKS

MOST_SHOWN = 5


def check_vocabulary(stored: Mapping[str, Any], datamodule: Any) -> None:
    """Compares the data described in a checkpoint's `seqlab` entry with the data of the fit that continues.

    Raises:
        ValueError: a vocabulary, the labels or a size used to build the model has changed; the message says how.
    """
    if changed := change_of(stored, datamodule):
        raise ValueError(
            f"the data have changed since the checkpoint: {changed}; continue with the data of the checkpoint, or "
            "start a new fit"
        )


def change_of(stored: Mapping[str, Any], datamodule: Any) -> str:
    """First difference between the data described in a `seqlab` entry and those of a data module; empty = none.
    Entries that are missing are not compared."""
    from seqlab_data.tokenizers import tokenizer_from_dict

    changed = ""
    for name, what in (("tokenizer", "vocabulary"), ("source_tokenizer", "vocabulary of the sources")):
        now = getattr(datamodule, name, None)
        if stored.get(name) and now is not None and stored[name] != now.to_dict():
            then = tokenizer_from_dict(stored[name])
            changed = changed or _difference(what, _tokens(then), _tokens(now))
    if stored.get("labels"):
        changed = changed or _difference("list of labels", stored["labels"], getattr(datamodule, "labels", None) or [])
    for name in LINKS:
        then, now = stored.get("told", {}).get(name), getattr(datamodule, name, None)
        if name in stored.get("told", {}) and then != now:
            changed = changed or f"{name} was {then} and is {now}"
    return changed


def with_stored_tokenizers(config: dict[str, Any], stored: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Config whose data module uses the tokenizers of a checkpoint instead of building them from its text.

    Args:
        config: stored config of a run, with all options of its data module.
        stored: `seqlab` entry of the checkpoint.
        folder: folder to which the tokenizers are written.
    """
    data = config["data"]
    kept: dict[str, Any] = {}
    for name in ("tokenizer", "source_tokenizer"):
        if stored.get(name):
            (folder / name).write_text(json.dumps(stored[name]), encoding="utf-8")
            options = {"path": str(folder / name)}
            kept[name] = {"class_path": "seqlab_data.tokenizers.StoredTokenizer", "init_args": options}
    if "source_tokenizer" in kept:
        kept["target_tokenizer"] = kept.pop("tokenizer")
    given = data.get("init_args", {})
    return config | {"data": data | {"init_args": given | {name: kept[name] for name in kept if name in given}}}


def give_path(tokenizer: Any, checkpoint: Path) -> None:
    """Points a `StoredTokenizer` without a path, in a config, to the tokenizer of the checkpoint's run."""
    named = str(tokenizer.get("class_path")) if hasattr(tokenizer, "get") else ""
    if named.rpartition(".")[2] == "StoredTokenizer" and not tokenizer.get("init_args", {}).get("path"):
        tokenizer["init_args"] = {"path": str(checkpoint.parent.parent / "tokenizer.json")}


def _difference(what: str, then: Sequence[str], now: Sequence[str]) -> str:
    """Description of the difference between two lists; empty if they are equal."""
    if list(then) == list(now):
        return ""
    news, gone = ([entry for entry in ours if entry not in set(others)] for ours, others in ((now, then), (then, now)))
    parts = [f"{word}: {_shown(entries)}" for word, entries in (("new", news), ("gone", gone)) if entries]
    return f"the {what} had {len(then)} entries and has {len(now)} ({'; '.join(parts) or 'in another order'})"


def _shown(entries: list[str]) -> str:
    more = f" and {len(entries) - MOST_SHOWN} more" if len(entries) > MOST_SHOWN else ""
    return ", ".join(map(repr, entries[:MOST_SHOWN])) + more


def _tokens(tokenizer: Any) -> list[str]:
    return [token.decode("utf-8", errors="backslashreplace") for token in tokenizer.token_bytes]
