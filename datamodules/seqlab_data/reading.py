"""Files as bytes and as text, a piece at a time, whatever their size; those that are compressed are unpacked."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
"""Bytes that are read at once."""
PACKINGS = (".gz", ".zst")
UTF_8 = "utf-8"


@dataclass(frozen=True)
class Document:
    """One text, read anew each time: a file, or (path None) a topic of CPython's documentation.

    Attributes:
        encoding: of the bytes.
        packing: ".gz" or ".zst", how they are compressed.
    """

    name: str
    path: Path | None
    encoding: str = UTF_8
    packing: str = ""

    @property
    def bytes_in(self) -> str:
        """The encoding in which places in the text are counted."""
        return self.encoding

    def texts(self) -> Iterator[str]:
        """The document in pieces, its line ends as they are.

        Raises:
            ValueError: it is empty, or not in its encoding.
        """
        yield from read_text(self._chunks(), self.encoding, self.name)

    def documents(self) -> Iterator[Iterator[str]]:
        """The documents in this file, each in pieces; those of one are read before the next."""
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
    """The content of a file.

    Args:
        packing: one of `PACKINGS`, how it is compressed; "" = it is not.

    Raises:
        ValueError: what is compressed is damaged or has no end.
        OSError: it cannot be read.
    """
    done = 0
    with _open(path, packing) as file:
        while chunk := _read(file, path, done):
            yield chunk
            done += len(chunk)


def read_text(chunks: Iterable[bytes], encoding: str, name: str) -> Iterator[str]:
    """The text that these bytes are.

    Raises:
        ValueError: there are none, or they are not of the encoding, with the line and the byte.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    done = lines = 0
    for chunk in chunks:
        yield (text := _decoded(decoder, chunk, done, lines, encoding, name))
        done += len(chunk)
        lines += text.count("\n")
    if not done:
        raise ValueError(f"{name} is empty, it ends at byte 0; give a file with text")
    if text := _decoded(decoder, b"", done, lines, encoding, name):
        yield text


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
        raise ValueError(f"{path} is damaged after {done} bytes of its content: {error}") from error


def _decoded(decoder: codecs.IncrementalDecoder, chunk: bytes, done: int, lines: int, encoding: str, name: str) -> str:
    """The next piece of text, after `done` bytes and `lines` ends of lines."""
    try:
        return decoder.decode(chunk, final=not chunk)
    except UnicodeDecodeError as error:
        # What the decoder held back of earlier chunks stands before this one.
        byte = done + len(chunk) - len(error.object) + error.start
        line = lines + error.object[: error.start].decode(encoding, "ignore").count("\n") + 1
        raise ValueError(
            f"{name}, line {line} is not {encoding.upper()} text: byte {byte} is "
            f"0x{error.object[error.start]:02x} ({error.reason}); data.encoding may name another, such as latin-1"
        ) from error
