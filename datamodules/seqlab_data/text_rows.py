"""Files and datasets whose rows have a text: each row is a document, or all rows form one document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from seqlab_data import reading
from seqlab_data.hub import read_hub
from seqlab_data.reading import Document, lines_of
from seqlab_data.rows import check_names, parsed, text_of

LONGEST_LINE = 1 << 26
"""Maximum number of characters in a JSON line, which is parsed as a whole."""
BATCH = 64
"""Number of rows read at a time."""


class TextRows(Document, ABC):
    """Rows of text; each non-empty row is a document."""

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
    """A file with one JSON object per line, whose `text` is a document."""

    def rows(self) -> Iterator[str]:
        for number, line in enumerate(lines_of(Document.texts(self), self.name, LONGEST_LINE), start=1):
            place = f"{self.name}, line {number}"
            yield text_of(parsed(line, place), place)


class Parquet(TextRows):
    """A Parquet file, whose column `text` has one document per row."""

    def rows(self) -> Iterator[str]:
        import pyarrow
        from pyarrow.parquet import ParquetFile

        number = 0
        try:
            opened = ParquetFile(
                self.path, pre_buffer=False, buffer_size=reading.CHUNK, page_checksum_verification=True
            )
            with opened as file:
                check_names(file.schema_arrow.names, ("text",), self.name)
                for batch in file.iter_batches(BATCH, columns=["text"], use_threads=False):
                    for value in batch.column(0):
                        number += 1
                        text = value.as_py()
                        yield "" if text is None else text_of({"text": text}, f"{self.name}, line {number}")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.name}, line {number} is not UTF-8 text: {error.reason}; write the file again"
            ) from error
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            said = " ".join(str(error).split())
            raise ValueError(
                f"{self.name} is damaged or not a Parquet file, after line {number}: {said}; write it again"
            ) from error


class HubText(Document):
    """A split of a Hugging Face dataset as one text: its column `text`, with one row per line."""

    def texts(self) -> Iterator[str]:
        """Yields the text in pieces; raises ValueError if the dataset cannot be read, has no text, or a row is not a
        string."""
        for number, row in enumerate(read_hub(self.name, ("text",)), start=1):
            text = text_of(row, f"{self.name}, line {number}")
            yield text if text.endswith("\n") else text + "\n"
