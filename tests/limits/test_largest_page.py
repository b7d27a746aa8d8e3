"""The largest bundles of a page, each just inside and just outside: the sizes that a browser was seen to open."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from limits.edge import Edge
from seqlab_export.page import largest

FILE = 402_653_166
"""Bytes whose base64 is the longest string of V8: with one more, Chromium reads an empty text."""
OF_FILE = f"has [0-9]+ bytes, but a browser opens at most {FILE} of a file; `seqlab export RUN .* --precision int4`"
OF_ALL = f"take [0-9]+ bytes in a browser, which opens at most {4 * FILE} in a page; `seqlab export RUN .* int4`"


def bundles(sizes: Sequence[int], precision: str = "fp32") -> None:
    """Bundles whose only large file has so many bytes, which take no disk space."""
    manifest = SimpleNamespace(files={"weights.bin": ""}, precision=precision)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(largest, "load_manifest", lambda _: manifest)
        for number, size in enumerate(sizes):
            folder = Path(f"{number}")
            folder.mkdir(exist_ok=True)
            with (folder / "weights.bin").open("wb") as file:
                os.truncate(file.fileno(), size)
        largest.check_sizes([Path(f"{number}") for number in range(len(sizes))])


def of(precision: str) -> Any:
    return lambda parameters: largest.check_weights(parameters, precision)


FOURS, THIRD = [FILE] * 4, FILE * 4 // 3
EDGES = {
    "a file": Edge(bundles, [FILE], [FILE + 1], f"0/weights.bin {OF_FILE}"),
    "the last file": Edge(bundles, [1, FILE], [1, FILE + 1], f"1/weights.bin {OF_FILE}"),
    "all files": Edge(bundles, FOURS, [*FOURS, 1], OF_ALL),
    "bf16": Edge(lambda of_all: bundles(of_all, "bf16"), [FILE, THIRD - FILE], [FILE, THIRD - FILE + 1], OF_ALL),
    "fp16": Edge(lambda of_all: bundles(of_all, "fp16"), [FILE, THIRD - FILE], [FILE, THIRD - FILE + 1], OF_ALL),
    "int8": Edge(lambda of_all: bundles(of_all, "int8"), FOURS, [*FOURS, 1], OF_ALL),
    "int4": Edge(lambda of_all: bundles(of_all, "int4"), FOURS, [*FOURS, 1], OF_ALL),
    "weights in fp32": Edge(of("fp32"), 100_663_291, 100_663_292, f"the file of weights {OF_FILE}"),
    "weights in fp16": Edge(of("fp16"), 201_326_583, 201_326_584, f"the file of weights {OF_FILE}"),
    "weights in bf16": Edge(of("bf16"), 201_326_583, 201_326_584, f"the file of weights {OF_FILE}"),
    "weights in int8": Edge(of("int8"), FILE, FILE + 1, f"the file of weights {OF_FILE}"),
    "weights in int4": Edge(of("int4"), 2 * FILE + 1, 2 * FILE + 2, f"the file of weights {OF_FILE}"),
}


@pytest.mark.parametrize("name", EDGES)
def test_a_page_takes_what_a_browser_opens(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    EDGES[name].check()
