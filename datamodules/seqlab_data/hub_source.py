"""Hugging Face datasets, from a folder or by name: the optional extra `hf`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqlab_data.text_source import Document

PREFIX = "hf:"
ACCEPTED = "hf:NAME[:CONFIG][@SPLIT] or hf:FOLDER[@SPLIT], a folder that save_to_disk has written"


def is_hub(path: str) -> bool:
    """Whether a path is of a dataset."""
    return path.startswith(PREFIX)


@dataclass(frozen=True)
class HubDocument(Document):
    """A split of a dataset, whose name is `hf:NAME[:CONFIG][@SPLIT]` or `hf:FOLDER[@SPLIT]`, as lines of JSON.

    Attributes:
        columns: what is read; one within another is `translation.en`.
    """

    columns: tuple[str, ...] = ()

    def read_bytes(self) -> bytes:
        """A JSON object a row, in which classes have their names.

        Raises:
            ValueError: datasets is not installed, the dataset cannot be read, its split is not named, it has no row or
                lacks a column, or a row has a class without a name.
        """
        lines = [json.dumps(row) for row in _rows(self.name, self.columns)]
        if not lines:
            raise ValueError(f"{self.name} has no row; give {ACCEPTED}")
        return "\n".join(lines).encode()


class HubText(Document):
    """A split of a dataset as one text: its column `text`, a row a line."""

    def read_bytes(self) -> bytes:
        """Raises ValueError where the dataset cannot be read, has no text, or a row of it is no string."""
        lines = []
        for number, row in enumerate(_rows(self.name, ("text",)), start=1):
            if not isinstance(row["text"], str):
                raise ValueError(f"{self.name}, line {number} has a 'text' that is not a string, but {row['text']!r}")
            lines.append(row["text"] if row["text"].endswith("\n") else row["text"] + "\n")
        if not lines:
            raise ValueError(f"{self.name} has no row; give {ACCEPTED}")
        return "".join(lines).encode()


def _rows(path: str, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    split = _split(path).flatten()
    for column in columns:
        if column not in split.column_names:
            raise ValueError(f"{path} has no column {column}, it has {', '.join(split.column_names)}")
    classes = {column: names for column in columns if (names := _class_names(split.features[column]))}
    for number, row in enumerate(split.select_columns([*columns]).with_format(None), start=1):
        for column, names in classes.items():
            try:
                row[column] = _named(row[column], names)
            except KeyError as error:
                raise ValueError(
                    f"{path}, line {number} has the class {error} in {column}; its classes are 0 to {len(names) - 1}"
                ) from error
        yield row


def _split(path: str) -> Any:
    """The split of a path, as a `datasets.Dataset`."""
    try:
        import datasets  # type: ignore[import-untyped]
    except ImportError as error:
        raise ValueError(f"{path} needs Hugging Face's datasets: pip install 'seqlab[hf]'") from error

    source, _, split = path.removeprefix(PREFIX).partition("@")
    folder = Path(source).expanduser()
    name, _, config = source.partition(":")
    try:
        found = datasets.load_from_disk(str(folder)) if folder.is_dir() else datasets.load_dataset(name, config or None)
    except Exception as error:  # of any kind: an empty dataset gives an IndexError
        raise ValueError(f"{path} cannot be read: {error}; give {ACCEPTED}") from error
    splits = {"": found} if isinstance(found, datasets.Dataset) else dict(found)
    if not split and len(splits) == 1:
        [split] = splits
    if split not in splits:
        names = ", ".join(filter(None, splits)) or "none"
        raise ValueError(f"{path} names no split of the dataset, it has {names}; give {ACCEPTED}")
    return splits[split]


def _class_names(feature: Any) -> dict[int, str]:
    """Of a column of classes, or of lists of these, their names."""
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return dict(enumerate(names or ()))


def _named(value: Any, names: dict[int, str]) -> Any:
    return [names[one] for one in value] if isinstance(value, list) else names[value]
