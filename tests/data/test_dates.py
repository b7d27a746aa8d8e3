"""The built-in pairs: dates read by Python's own parser, the same bytes for everyone, no date in two splits."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from datetime import date, datetime

import pytest

from data.helpers import refused
from seqlab_data import ParallelTextDataModule
from seqlab_data.pairs import DATES, LOCALES, dates
from seqlab_data.tokenizers import CharTokenizer

ENGLISH = ("%m/%d/%Y", "%b %d, %Y", "%B %d, %Y", "%A, %B %d, %Y")
Pairs = dict[str, list[tuple[str, ...]]]


@pytest.fixture(scope="module", name="pairs")
def _pairs() -> Pairs:
    lines = {split: dates(split).lines() for split in DATES}
    return {
        split: [(*line.split("\t")[0].split(" ", 1), line.split("\t")[1]) for line in some]
        for split, some in lines.items()
    }


def parsed(text: str) -> set[date]:
    found = set()
    for pattern in ENGLISH:
        with suppress(ValueError):
            found.add(datetime.strptime(text, pattern).date())
    return found


def test_dates_are_of_every_locale_and_english_ones_are_what_python_reads(pairs: Pairs) -> None:
    english = [(text, iso) for locale, text, iso in pairs["train"] if locale == "en_US"]
    assert len(english) > 500
    assert all(parsed(text) == {date.fromisoformat(iso)} for text, iso in english)
    for some in pairs.values():
        assert {locale for locale, _, _ in some} == set(LOCALES)
        assert all(iso[:4] in text for _, text, iso in some), "every year has four digits"


def test_no_date_is_in_two_splits(pairs: Pairs) -> None:
    days = [{iso for _, _, iso in some} for some in pairs.values()]
    assert [len(some) for some in pairs.values()] == [30_000, 1_000, 1_000]
    assert sum(map(len, days)) == len(set.union(*days))
    assert min(set.union(*days)) < "1902" and max(set.union(*days)) > "2097"


def test_the_set_is_the_same_for_everyone() -> None:
    for split, digest in {"val": "3a7938c3ac4daf74", "test": "efc90235c840d8ee"}.items():
        assert hashlib.sha256(dates(split).content).hexdigest().startswith(digest)


def test_the_data_module_has_them_without_a_file() -> None:
    data = ParallelTextDataModule(source_tokenizer=CharTokenizer, target_tokenizer=CharTokenizer)
    data.setup("fit")
    described = data.describe()
    assert described["source"] == "dates of Unicode's CLDR"
    assert [split["pairs"] for split in described["splits"].values()] == [30_000, 1_000, 1_000]
    references, lines = data.references("test"), dates("test").lines()
    for batch in data.test_dataloader():
        for row, source in zip(batch.rows.tolist(), batch.source, strict=True):
            assert [f"{data.source_tokenizer.decode(source.tolist())}\t{references[row][0]}"] == lines[row : row + 1]
    batches = list(data.train_dataloader())
    assert all(max(batch.source.numel(), batch.tokens.numel()) <= 4096 for batch in batches)
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == list(range(30_000))
    read = sum(int(batch.source_mask.sum()) for batch in batches)
    assert read == described["splits"]["train"]["source_tokens"]
    assert read > 0.9 * sum(batch.source_mask.numel() for batch in batches), "little is padded"
    with refused(r"data.train must name the file of its split too"):
        ParallelTextDataModule(val="val.tsv")
