"""Files of lines: opened, decoded and taken apart, or refused."""

from __future__ import annotations

from pathlib import Path

from seqlab_data.text_source import UTF_8, Document


def open_file(name: str | Path, accepted: str, encoding: str = UTF_8) -> Document:
    """The file with this name.

    Raises:
        ValueError: there is no such file; says what is `accepted`.
    """
    path = Path(name).expanduser()
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give {accepted}")
    return Document(str(path), path, encoding)


def read_text(document: Document) -> str:
    """The whole file, without a byte-order mark.

    Raises:
        ValueError: it is empty, or not in its encoding.
    """
    text = document.read().removeprefix("\ufeff")
    if not text:
        raise ValueError(f"{document.name} is empty but for a byte-order mark; give a file with text")
    return text


def read_lines(document: Document) -> list[str]:
    r"""The lines of the file without their ends, "\n" or "\r\n". Other characters that may end a line do not.

    Raises:
        ValueError: it is empty, or not in its encoding.
    """
    lines = read_text(document).split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
