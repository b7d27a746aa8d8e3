"""Comparisons on joined sentences, with translators whose answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from seqlab.studies import joined
from seqlab.studies.joined import ENCODINGS, FIRST, JOINED, NONE, OF_ANOTHER, ONE_BY_ONE, Joined, compared
from seqlab.studies.rules import Verdict, judge
from seqlab_data.generated import Draw
from seqlab_data.tokenizers import WordTokenizer

LINES = [" ".join("abcdefghij"[word] for word in Draw(0, line).integers(10, 8)) for line in range(48)]


def lines(count: int) -> list[str]:
    return joined.joined(LINES, count)


def halved(texts: Sequence[str]) -> list[str]:
    return [" ".join(text.split()[: len(text.split()) // 2]) for text in texts]


RIGHT = {n: lines(n) for n in JOINED}
TIRED = {n: lines(n) if n == 1 else halved(lines(n)) for n in JOINED}


def judged(none: Any, encodings: Any) -> dict[str, Verdict]:
    measured = compared({NONE: none} | dict.fromkeys(ENCODINGS, encodings), LINES)
    values = {name: [value] * 3 for name, value in measured.values.items()}
    return {claim.key: judge(claim, values).verdict for claim in Joined.claims}


def test_sentences_are_joined_whole_and_in_order() -> None:
    assert joined.joined(["a b", "c", "d", "e"], 2) == ["a b c", "d e"]
    assert all(" ".join(lines(n)) == " ".join(LINES) for n in JOINED)


def test_verdicts_of_one_that_tires_and_of_one_that_does_not() -> None:
    assert judged(TIRED, RIGHT) == {"collapses": Verdict.SUPPORTED, "any-length": Verdict.SUPPORTED}
    assert judged(RIGHT, TIRED) == {"collapses": Verdict.REFUTED, "any-length": Verdict.REFUTED}
    nothing = {n: ["?" for _ in RIGHT[n]] for n in JOINED}
    assert judged(nothing, RIGHT)["collapses"] == Verdict.INVALID


def test_controls_by_hand() -> None:
    values = compared({NONE: RIGHT} | dict.fromkeys(ENCODINGS, RIGHT), LINES).values
    assert values[NONE] == values[ONE_BY_ONE] == pytest.approx(1)
    assert values[FIRST] < 0.2, "one in four words, and the penalty for what is short"
    assert values[f"{OF_ANOTHER}, single"] < 10


def test_a_text_is_read_whole_and_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = WordTokenizer("\n".join(LINES))
    loaded: Any = SimpleNamespace(source_tokenizer=tokenizer)

    def copy(_: Any, source: Tensor, mask: Tensor) -> list[str]:
        assert mask.sum() < mask.numel()
        return [tokenizer.decode(row[seen][:-1].tolist()) for row, seen in zip(source, mask, strict=True)]

    monkeypatch.setattr("seqlab.studies.joined.write", copy)
    texts = [LINES[0], *lines(3)[:2], "a"]
    assert joined.translate(loaded, texts) == texts
