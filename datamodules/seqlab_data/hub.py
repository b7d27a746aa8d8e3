"""Hugging Face datasets, from a folder or by name: the optional extra `hf`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PREFIX = "hf:"
ACCEPTED = "hf:NAME[:CONFIG][@SPLIT] or hf:FOLDER[@SPLIT], a folder that save_to_disk has written"


def is_hub(path: str) -> bool:
    """Returns True for the path of a Hugging Face dataset."""
    return path.startswith(PREFIX)


def read_hub(path: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of a split, read lazily, with class ids replaced by class names.

    Args:
        path: `hf:NAME[:CONFIG][@SPLIT]` or `hf:FOLDER[@SPLIT]`.
        columns: names of the columns to read; a nested column is written `translation.en`.

    Raises:
        ValueError: datasets is not installed, the dataset cannot be read, its split is not named, it has no rows or
            lacks a column, or a row has a class without a name.
    """
    split = _split(path).flatten()
    for column in columns:
        if column not in split.column_names:
            there = ", ".join(split.column_names)
            raise ValueError(f"{path} has no column {column}; it has {there}; name one of these")
    if not len(split):
        raise ValueError(f"{path} has no row; give {ACCEPTED}")
    classes = {column: names for column in columns if (names := _class_names(split.features[column]))}
    for number, row in enumerate(split.select_columns([*columns]).with_format(None), start=1):
        for column, known in classes.items():
            try:
                row[column] = _named(row[column], known)
            except KeyError as error:
                raise ValueError(
                    f"{path}, line {number} has the class {error} in {column}; its classes are 0 to {len(known) - 1}"
                ) from error
        yield row


def _split(path: str) -> Any:
    """The split of a path, as a `datasets.Dataset`."""
    try:
        import datasets
    except ImportError as error:
        raise ValueError(f"{path} needs Hugging Face's datasets: pip install 'seqlab[hf]'") from error

    source, _, split = path.removeprefix(PREFIX).partition("@")
    folder = Path(source).expanduser()
    name, _, config = source.partition(":")
    try:
        found = datasets.load_from_disk(str(folder)) if folder.is_dir() else datasets.load_dataset(name, config or None)
    except Exception as error:  # any type is possible: an empty dataset raises an IndexError
        if datasets.config.HF_HUB_OFFLINE:
            fetched = "it is not on this machine; set HF_HUB_OFFLINE=0 to download it"
            raise ValueError(f"{path} cannot be read: {fetched}; give {ACCEPTED}") from error
        raise ValueError(f"{path} cannot be read: {error}; give {ACCEPTED}") from error
    splits = {"": found} if isinstance(found, datasets.Dataset) else dict(found)
    if not split and len(splits) == 1:
        [split] = splits
    if split not in splits:
        names = ", ".join(filter(None, splits)) or "none"
        raise ValueError(f"{path} names no split of the dataset, which has {names}; give {ACCEPTED}")
    return splits[split]


def _class_names(feature: Any) -> dict[int, str]:
    """Names of the classes in a column of class ids, or of lists of class ids."""
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return dict(enumerate(names or ()))


def _named(value: Any, names: dict[int, str]) -> Any:
    return [names[one] for one in value] if isinstance(value, list) else names[value]
