"""Files, and a dataset, whose rows have a text: each row is a document, or all are one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from seqlab_data import reading
from seqlab_data.hub import read_hub
from seqlab_data.reading import Document
from seqlab_data.rows import parsed, text_of

LONGEST_LINE = 1 << 26
"""Characters of a line of JSON, which is parsed whole."""
BATCH = 64
"""Rows that are unpacked at once."""


class TextRows(Document, ABC):
    """Rows, of which each that has any text is a document."""

    @property
    def bytes_in(self) -> str:
        return reading.UTF_8

    @abstractmethod
    def rows(self) -> Iterator[str]:
        """The text of each row."""

    def documents(self) -> Iterator[Iterator[str]]:
        some = False
        for text in self.rows():
            if text:
                some = True
                yield (text[i : i + reading.CHUNK] for i in range(0, len(text), reading.CHUNK))
        if not some:
            raise ValueError(f"{self.name} has no row with a text; give rows whose column `text` is a document")

    def texts(self) -> Iterator[str]:
        return self.rows()


class JsonLines(TextRows):
    """A file with a JSON object a line, whose `text` is a document."""

    def rows(self) -> Iterator[str]:
        for number, line in enumerate(_lines(Document.texts(self), self.name), start=1):
            place = f"{self.name}, line {number}"
            yield text_of(parsed(line, place), place)


class Parquet(TextRows):
    """A Parquet file, whose column `text` has a document a row."""

    def rows(self) -> Iterator[str]:
        import pyarrow
        from pyarrow.parquet import ParquetFile

        number = 0
        try:
            opened = ParquetFile(
                self.path, pre_buffer=False, buffer_size=reading.CHUNK, page_checksum_verification=True
            )
            with opened as file:
                if "text" not in file.schema_arrow.names:
                    raise ValueError(f"{self.name} has no column text, it has {', '.join(file.schema_arrow.names)}")
                for batch in file.iter_batches(BATCH, columns=["text"], use_threads=False):
                    for value in batch.column(0):
                        number += 1
                        text = value.as_py()
                        yield "" if text is None else text_of({"text": text}, f"{self.name}, line {number}")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.name}, line {number} is not UTF-8 text: {error.reason}") from error
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            said = " ".join(str(error).split())
            raise ValueError(f"{self.name} is damaged or no Parquet file, after line {number}: {said}") from error


class HubText(Document):
    """A split of a Hugging Face dataset as one text: its column `text`, a row a line."""

    def texts(self) -> Iterator[str]:
        """Raises ValueError where the dataset cannot be read, has no text, or a row of it is no string."""
        for number, row in enumerate(read_hub(self.name, ("text",)), start=1):
            text = text_of(row, f"{self.name}, line {number}")
            yield text if text.endswith("\n") else text + "\n"


def _lines(texts: Iterable[str], name: str) -> Iterator[str]:
    r"""The lines of a text without its byte-order mark and their "\n".

    Raises:
        ValueError: one is too long.
    """
    number, rest = 1, ""
    for piece in texts:
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield line.removeprefix("\ufeff") if number == 1 else line
            number += 1
        if len(rest) > LONGEST_LINE:
            raise ValueError(f"{name}, line {number} has more than {LONGEST_LINE} characters; a line is a JSON object")
    if rest:
        yield rest
