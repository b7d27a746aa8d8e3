"""Text in any encoding is the same data as in UTF-8, in every data module that reads text; a wrong one is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqlab_data import LabelledTextDataModule, ParallelTextDataModule, TaggedTextDataModule, TextDataModule
from seqlab_data.tokenizers import WordTokenizer

WORDS = {"latin-1": "é ü ß", "cp1252": "€ œ é", "utf-16": "é 日 😀", "shift_jis": "日 本 語", "koi8-r": "д ж"}
MODULES: dict[str, tuple[Callable[..., Any], str, str]] = {
    "text": (TextDataModule, "text.txt", "x {0}\n" * 60),
    "rows": (TextDataModule, "rows.jsonl", '{{"text": "x {0} \\u732b"}}\n' * 60),
    "pairs": (ParallelTextDataModule, "pairs.tsv", "".join(f"a{i} {{0}}\tb {{0}}\n" for i in range(60))),
    "labels": (LabelledTextDataModule, "labels.txt", "".join(f"{{0[0]}} a{i} {{0}}\n" for i in range(60)) + "z b\n"),
    "table": (
        LabelledTextDataModule,
        "labels.csv",
        "text,label\n" + "".join(f"a{i} {{0}},{{0}}\n" for i in range(60)) + "b,z\n",
    ),
    "folder": (LabelledTextDataModule, "labels/é.txt", "".join(f"a{i} {{0}}\n" for i in range(60))),
    "tags": (TaggedTextDataModule, "tags.conll", "".join(f"a{i} O\n{{0[0]}} O\n\n" for i in range(60)) + "b B\n"),
    "json": (ParallelTextDataModule, "pairs.jsonl", '{{"source": "a {0}", "target": "{0}"}}\n' * 20),
}


def make(module: str, folder: Path, text: str, encoding: str, said: str) -> Any:
    make_module, name, _ = MODULES[module]
    path = folder / encoding / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    if module == "folder":
        path.with_name("z.txt").write_bytes("b\n".encode(encoding))
    read = str(path.parent if module == "folder" else path)
    options: dict[str, Any] = {"seq_len": 4} if make_module is TextDataModule else {"val": read}
    if make_module is ParallelTextDataModule:
        options["source_tokenizer"] = WordTokenizer
    return make_module(read, encoding=said, **options)


@pytest.mark.parametrize("encoding", WORDS)
@pytest.mark.parametrize("module", MODULES)
def test_it_is_the_same_data(module: str, encoding: str, tmp_path: Path) -> None:
    text = MODULES[module][2].format(WORDS[encoding])
    plain = make(module, tmp_path, text, "utf-8", "utf-8")
    other = make(module, tmp_path, text, encoding, encoding.upper())
    other.setup("fit")  # first: it makes the cache that both have
    plain.setup("fit")
    assert other.describe() | {"source": ""} == plain.describe() | {"source": ""}
    assert other.identity() == plain.identity()


@pytest.mark.parametrize("encoding", ["latin-1", "koi8-r", "shift_jis"])
@pytest.mark.parametrize("module", MODULES)
def test_a_wrong_one_is_refused_with_file_and_byte(module: str, encoding: str, tmp_path: Path) -> None:
    text = MODULES[module][2].format(WORDS[encoding])
    data = make(module, tmp_path, text, encoding, "utf-8")
    byte = next(i for i, byte in enumerate(text.encode(encoding)) if byte > 127)
    with pytest.raises(ValueError, match="not UTF-8 text") as refusal:
        data.setup("fit")
    said = str(refusal.value)
    assert MODULES[module][1] in said and f"byte {byte} is 0x" in said and "data.encoding" in said


@pytest.mark.parametrize("name", ["klingon", "rot13", "", "base64"])
def test_what_is_no_encoding_is_refused(name: str) -> None:
    for make_module in (TextDataModule, ParallelTextDataModule, LabelledTextDataModule, TaggedTextDataModule):
        with pytest.raises(ValueError, match=r"data\.encoding"):
            make_module(train="x.txt", encoding=name)
