"""Sources of text: files, globs, folders, datasets, or CPython's own documentation."""

from __future__ import annotations

import codecs
import glob
import hashlib
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seqlab_data.hub import is_hub
from seqlab_data.reading import PACKINGS, UTF_8, Document
from seqlab_data.text_rows import HubText, JsonLines, Parquet


def check_encoding(name: str) -> str:
    """Canonical name of an encoding.

    Raises:
        ValueError: Python has no text encoding of that name.
    """
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, UnicodeError) as error:
        some = "utf-8, utf-16, latin-1, cp1252, shift_jis, gb18030"
        raise ValueError(f"data.encoding {name!r} is not a text encoding of Python; examples: {some}") from error


def find_documents(path: str | Sequence[str] | None, encoding: str = UTF_8) -> list[Document]:
    """The documents of a path, in reading order.

    Args:
        path: a file; a glob (`**` = any folders); a folder, whose files are read recursively, sorted by path, except
            files hidden by a leading dot; a split of a Hugging Face dataset, `hf:NAME@SPLIT`, whose column `text` is
            one document; a list of these, in its order; or None for CPython's documentation (`pydoc_data.topics`),
            with each topic a document, sorted by name.
        encoding: text encoding of the files.

    Raises:
        ValueError: there is no such file, or nothing matches.
    """
    if path is None:
        from pydoc_data.topics import topics

        return [Document(topic, None) for topic in sorted(topics)]
    patterns = [path] if isinstance(path, str) else list(path)
    if not patterns:
        raise ValueError("data.path is an empty list; name a file, glob or folder, or leave it out")
    return [document for pattern in patterns for document in _documents(pattern, encoding)]


def find_file(name: str | Path, accepted: str) -> Path:
    """The file with this name.

    Raises:
        ValueError: the file does not exist; the message names the `accepted` formats.
    """
    path = Path(name).expanduser()
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give {accepted}")
    return path


def source_name(path: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None) -> str:
    """Name of the source, for reports."""
    if isinstance(path, Mapping):
        return "; ".join(f"{name}: {source_name(one)}" for name, one in path.items())
    if path is None:
        return f"pydoc_data.topics of CPython {platform.python_version()}"
    return path if isinstance(path, str) else ", ".join(path)


def content_digest(contents: Iterable[bytes]) -> str:
    """sha256 of the concatenated sha256 digests of the contents: names and folders do not matter, boundaries do."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def _documents(pattern: str, encoding: str) -> list[Document]:
    if is_hub(pattern):
        return [HubText(pattern, None)]
    return [_of_file(file, encoding) for file in _files(pattern)]


def _of_file(file: Path, encoding: str) -> Document:
    packing = file.suffix.lower() if file.suffix.lower() in PACKINGS else ""
    kind = Path(file.stem).suffix.lower() if packing else file.suffix.lower()
    if kind == ".parquet" and packing:
        raise ValueError(f"{file} is compressed; decompress it, since Parquet compresses internally")
    make = {".jsonl": JsonLines, ".parquet": Parquet}.get(kind, Document)
    return make(str(file), file, encoding, packing)


def _files(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
        files = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    elif glob.has_magic(pattern):
        files = [Path(match) for match in glob.glob(str(path), recursive=True) if Path(match).is_file()]
    else:
        wrong = "is not a regular file" if path.exists() else "does not exist"
        raise ValueError(f"{pattern} {wrong}; give a file, glob or folder of text")
    if not files:
        raise ValueError(f"{pattern} matches no file; give a file, glob or folder of text")
    return sorted(files)
