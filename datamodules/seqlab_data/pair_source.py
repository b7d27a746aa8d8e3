"""Where pairs come from: a file of `source<TAB>target` lines, one of sources and one of targets, or named columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seqlab_data.json_source import is_json, open_rows, read_json_lines
from seqlab_data.line_source import read_lines
from seqlab_data.splits import split_of
from seqlab_data.text_source import UTF_8, Document

ACCEPTED = (
    "a file of source<TAB>target lines, a source file and a target file with a comma between them, a .jsonl file, or "
    "hf:DATASET"
)
COLUMNS = ("source", "target")


class Pair(NamedTuple):
    """A source and all that may be written of it; the first reference is the target."""

    source: str
    references: tuple[str, ...]

    @property
    def target(self) -> str:
        return self.references[0]


@dataclass(frozen=True)
class Pairs:
    """The pairs of one split, and the files that they are from: one, or source and target.

    Attributes:
        lines: of each pair, counted from 1.
    """

    documents: tuple[Document, ...]
    pairs: list[Pair]
    lines: Sequence[int]

    def place(self, row: int) -> str:
        """The file or files of a row, and its line."""
        return f"{' and '.join(document.name for document in self.documents)}, line {self.lines[row]}"

    def divide(self, val_share: float) -> dict[str, Pairs]:
        """Train and val: pairs of one source are in one of them, by a hash of it, whatever their order."""
        shares = {"train": 1 - val_share, "val": val_share}
        rows: dict[str, list[int]] = {name: [] for name in shares}
        for row, pair in enumerate(self.pairs):
            rows[split_of(pair.source.encode(), shares)].append(row)
        return {
            name: Pairs(self.documents, [self.pairs[row] for row in some], [self.lines[row] for row in some])
            for name, some in rows.items()
        }


def open_pairs(path: str | Sequence[str], columns: tuple[str, str], encoding: str = UTF_8) -> tuple[Document, ...]:
    """A file of `source<TAB>target[<TAB>more references]` lines; a source file and a target file with as many lines,
    as a list or with a comma between them; or a `.jsonl` file or a dataset (`hf:`) with these columns.

    Raises:
        ValueError: a file is missing.
    """
    return tuple(open_rows(name, columns, ACCEPTED, encoding) for name in _names(path))


def read_pairs(documents: tuple[Document, ...], columns: tuple[str, str] = COLUMNS) -> Pairs:
    """The pairs of one document or of two.

    Args:
        columns: of sources and of targets, where it has lines of JSON. A target may be a list of references.

    Raises:
        ValueError: one is empty or not in its encoding, the two have different numbers of lines, or a line lacks its
            TAB or has an empty source or target.
    """
    of_json = [document for document in documents if is_json(document.name)]
    if of_json and len(documents) > 1:
        raise ValueError(f"{of_json[0].name} has both sides of its pairs, so that it stands alone; give {ACCEPTED}")
    if of_json:
        fields = [*_of_json_lines(documents[0], columns)]
    elif len(documents) == 1:
        fields = [line.split("\t") for line in read_lines(documents[0])]
    else:
        sources, targets = map(read_lines, documents)
        if len(sources) != len(targets):
            raise ValueError(
                f"{documents[0].name} has {len(sources)} lines and {documents[1].name} has {len(targets)}, so line "
                f"{min(len(sources), len(targets)) + 1} has no counterpart; give two files of as many lines"
            )
        fields = [[source, target] for source, target in zip(sources, targets, strict=True)]
    pairs = [Pair(source, tuple(references)) for source, *references in fields]
    read = Pairs(documents, pairs, range(1, len(pairs) + 1))
    for row, pair in enumerate(read.pairs):
        if not pair.references:
            wrong = "has no TAB" if pair.source.strip() else "is empty"
            raise ValueError(f"{read.place(row)} {wrong}; a line is source<TAB>target[<TAB>more references]")
        if not all(text.strip() for text in (pair.source, *pair.references)):
            side = "target" if pair.source.strip() else "source"
            raise ValueError(f"{read.place(row)} has an empty {side}; both sides of a pair must hold text")
    return read


def _of_json_lines(document: Document, columns: tuple[str, str]) -> Iterator[list[str]]:
    for number, (source, target) in read_json_lines(document, columns):
        texts = [source, *(target if isinstance(target, list) else [target])]
        if len(texts) == 1 or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{document.name}, line {number} has a {columns[0]!r} that is not a string, or a {columns[1]!r} that "
                "is neither a string nor a list of some"
            )
        yield texts


def _names(path: str | Sequence[str]) -> list[str]:
    if isinstance(path, str):
        path = [path] if Path(path).expanduser().is_file() else path.split(",")
    if not 1 <= len(path) <= 2:
        raise ValueError(f"{', '.join(path) or 'an empty list'} is not one file or two; give {ACCEPTED}")
    return [name.strip() for name in path]
