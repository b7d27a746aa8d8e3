"""Streaming readers of files as bytes, text and lines; compressed files are decompressed.

All readers follow one rule: a byte-order mark is not text, "\\r\\n" is read as "\\n", and nothing else ends a line.
"""

from __future__ import annotations

import codecs
import gzip
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
"""Number of bytes read at a time."""
PACKINGS = (".gz", ".zst")
UTF_8 = "utf-8"
MARK = "\ufeff"
"""The byte-order mark, decoded."""
MARKS = {
    codecs.BOM_UTF8: ("utf-8", "utf-8-sig"),
    codecs.BOM_UTF32_LE: ("utf-32", "utf-32-le"),  # must precede UTF-16, whose mark is a prefix of this one
    codecs.BOM_UTF32_BE: ("utf-32", "utf-32-be"),
    codecs.BOM_UTF16_LE: ("utf-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("utf-16", "utf-16-be"),
}
NOT_TEXT = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive, as .npz and .xlsx files are",
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"%PDF": "a PDF file",
    b"SQLite format 3\0": "a SQLite database",
    b"version https://git-lfs.github.com/spec/": "a pointer of Git LFS (`git lfs pull` fetches its file)",
}
SURROGATE = re.compile("[\ud800-\udfff]")
REMEDY = "data.encoding may name another, such as latin-1"


@dataclass(frozen=True)
class Document:
    """One text, read afresh each time: a file, or (path None) a topic of CPython's documentation.

    Attributes:
        encoding: text encoding of the file.
        packing: compression, ".gz" or ".zst"; "" = none.
    """

    name: str
    path: Path | None
    encoding: str = UTF_8
    packing: str = ""

    def texts(self) -> Iterator[str]:
        """The document in pieces, as in `read_text`.

        Raises:
            ValueError: it is empty, or not in its encoding.
        """
        yield from read_text(self._chunks(), self.encoding, self.name)

    def documents(self) -> Iterator[Iterator[str]]:
        """The documents in this file, each in pieces; each document must be consumed before the next."""
        yield self.texts()

    def read(self) -> str:
        """The whole document.

        Raises:
            ValueError: it is empty, or not in its encoding.
        """
        return "".join(self.texts())

    def _chunks(self) -> Iterator[bytes]:
        if self.path is not None:
            return read_chunks(self.path, self.packing)
        from pydoc_data.topics import topics

        return iter([topics[self.name].encode()])


def read_chunks(path: Path, packing: str = "") -> Iterator[bytes]:
    """The content of a file, decompressed, in chunks.

    Args:
        packing: compression, one of `PACKINGS`; "" = none.

    Raises:
        ValueError: the compressed data is damaged or truncated.
        OSError: the file cannot be read.
    """
    done = 0
    with _open(path, packing) as file:
        while chunk := _read(file, path, done):
            yield chunk
            done += len(chunk)


def read_text(chunks: Iterable[bytes], encoding: str, name: str, remedy: str = REMEDY) -> Iterator[str]:
    r"""Decodes bytes to text, without the byte-order mark, and with "\r\n" replaced by "\n".

    Args:
        remedy: advice in the error message for bytes that are invalid in the encoding.

    Raises:
        ValueError: there is no text, or the bytes are invalid in the encoding (with the line and byte) or not text.
    """
    chunks, head, text = iter(chunks), b"", ""
    while len(head) < 4 and (chunk := next(chunks, b"")):
        head += chunk
    if not head:
        raise ValueError(f"{name} is empty: it ends at byte 0; give a file with text")
    _check_head(head, encoding, name)
    decoder = codecs.getincrementaldecoder(encoding)()
    done = lines = 0
    some, held = False, ""  # holds back a final "\r", which may be followed by "\n"
    for chunk in chain([head], chunks, [b""]):
        text = held + _decoded(decoder, chunk, done, lines, encoding, name, remedy)
        if not some:
            text = text.removeprefix(MARK)
        held = "\r" if chunk and text.endswith("\r") else ""
        text = text.removesuffix(held).replace("\r\n", "\n")
        if "\0" in text:
            line = lines + text[: text.index("\0")].count("\n") + 1
            raise ValueError(f"{name}, line {line} has a NUL character, so it is not {encoding.upper()}; {remedy}")
        if text:
            some = True
            yield text
        done += len(chunk)
        lines += text.count("\n")
    if not some:
        raise ValueError(f"{name} is empty except for a byte-order mark; give a file with text")


def lines_of(texts: Iterable[str], name: str, longest: float = math.inf) -> Iterator[str]:
    r"""The lines of a text in pieces, as `read_text` yields it, without their "\n". No other character ends a line.

    Args:
        longest: maximum number of characters in a line.

    Raises:
        ValueError: a line is longer, or contains a "\r".
    """
    number, rest = 1, ""
    for piece in texts:
        if "\r" in piece:
            before = piece[: piece.index("\r")].count("\n")
            raise ValueError(
                f"{name}, line {number + before} has a carriage return that does not end it; end each line with \\n "
                "or \\r\\n"
            )
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield line.removeprefix(MARK)  # byte-order mark within concatenated files
        number += len(lines)
        if len(rest) > longest:
            raise ValueError(f"{name}, line {number} has more than {longest} characters; divide it")
    if rest:
        yield rest.removeprefix(MARK)


def _check_head(head: bytes, encoding: str, name: str) -> None:
    """Rejects data whose first bytes indicate another encoding, or no text."""
    for begin, kind in NOT_TEXT.items():
        if head.startswith(begin):
            raise ValueError(f"{name} is {kind}, not text; give a file of text")
    marked = next((encodings for mark, encodings in MARKS.items() if head.startswith(mark)), ())
    if marked and encoding not in marked:
        raise ValueError(
            f"{name} begins with the byte-order mark of {marked[0].upper()}, so it is not {encoding.upper()} "
            f"text; give data.encoding {marked[0]}, or save it as {encoding.upper()}"
        )
    if not marked and encoding in ("utf-16", "utf-32"):
        raise ValueError(
            f"{name} has no byte-order mark, so its byte order is unknown; give data.encoding {encoding}-le or "
            f"{encoding}-be"
        )


def _open(path: Path, packing: str) -> Any:
    match packing:
        case ".gz":
            return gzip.open(path)
        case ".zst":
            import pyarrow

            return pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd")
    return open(path, "rb")


def _read(file: Any, path: Path, done: int) -> bytes:
    try:
        chunk: bytes = file.read(CHUNK)
        return chunk
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path} is damaged after {done} bytes of its content: {error}; copy it again") from error


def _decoded(
    decoder: codecs.IncrementalDecoder, chunk: bytes, done: int, lines: int, encoding: str, name: str, remedy: str
) -> str:
    """The next piece of text, after `done` bytes and `lines` line breaks."""
    try:
        text = decoder.decode(chunk, final=not chunk)
    except UnicodeDecodeError as error:
        # `error.object` starts with the bytes that the decoder kept from earlier chunks.
        byte = done + len(chunk) - len(error.object) + error.start
        line = lines + error.object[: error.start].decode(encoding, "ignore").count("\n") + 1
        raise ValueError(
            f"{name}, line {line} is not {encoding.upper()} text: byte {byte} is "
            f"0x{error.object[error.start]:02x} ({error.reason}); {remedy}"
        ) from error
    if encoding != UTF_8 and SURROGATE.search(text):  # escape-based encodings can produce surrogates
        raise ValueError(f"{name} contains a lone surrogate, which UTF-8 cannot encode; give another data.encoding")
    return text
