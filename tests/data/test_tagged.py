"""TaggedTextDataModule: CoNLL's columns by hand, refusals with file and line, the order of the batches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from data.order import check_order
from seqlab.batch import IGNORE
from seqlab_data import TaggedTextDataModule
from seqlab_data.tagged import TaggedSentence, read_tagged

TEXT = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC
call NN I-NP O

-DOCSTART-
Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
COLUMNS = ("tokens", "tags")
SENTENCES = [
    (("EU", "rejects", "German", "call"), ("B-ORG", "O", "B-MISC", "O"), (3, 4, 5, 6)),
    (("Peter", "Blackburn"), ("B-PER", "I-PER"), (9, 10)),
]


def write(folder: Path, name: str, content: str | bytes) -> str:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder / name)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace(" ", "\t"),
        TEXT.replace("\n", "\r\n"),
        TEXT.replace(" ", "  ").replace("\n", " \t\n"),
        "\ufeff" + TEXT.rstrip("\n"),
        TEXT + "\n\n\n",
    ],
    ids=["spaces", "tabs", "crlf", "more-spaces", "byte-order-mark", "more-blank-lines"],
)
def test_sentences_by_hand(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "x.conll", text)
    found, _ = read_tagged(path, COLUMNS)
    assert found == [TaggedSentence(*sentence, path) for sentence in SENTENCES]


def test_columns_are_separated_by_tabs_where_there_is_one(tmp_path: Path) -> None:
    path = write(tmp_path, "x.conll", "1\t000\tO\nNew York \t-\t B-LOC\n")
    (sentence,), _ = read_tagged(path, COLUMNS)
    assert (sentence.words, sentence.tags) == (("1", "New York"), ("O", "B-LOC"))


CONLL_U = """# sent_id = b0
# text = # its (unwritten) sake
1-2\t#its\t_\t_\t_\t_\t_\t_\t_\t_
1\t#\t#\tSYM\t_\t_\t2\tdep\t_\tSpaceAfter=No
2\tits\tits\tPRON\t_\t_\t0\troot\t_\t_
2.1\tunwritten\t_\tADJ\t_\t_\t_\t_\t_\t_
3\tsake\tsake\tNOUN\t_\t_\t2\tdep\t_\tSpaceAfter=No

1\tNo\tno\tINTJ\t_\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("divider", ["\t", "  "])
def test_conll_u_has_comments_ranges_and_empty_nodes(tmp_path: Path, plain: bool, divider: str) -> None:
    lines = CONLL_U.splitlines()[3 if plain else 0 :]
    path = write(tmp_path, "x.txt", "\n".join(lines).replace("\t", divider))
    found, _ = read_tagged(path, COLUMNS)
    first = [line - 3 * plain for line in (4, 5, 7)]
    assert found == [
        TaggedSentence(("#", "its", "sake"), ("SYM", "PRON", "NOUN"), tuple(first), path),
        TaggedSentence(("No",), ("INTJ",), (9 - 3 * plain,), path),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3\tsake\tsake", "3\tsake", r"x\.conllu, line 7 has 9 columns, but the first word 10"),
        ("\n\n1\tNo", "\n1\tNo", r"line 8 has the ID 1 after 3 words; .* a blank line stands between sentences"),
        ("3\tsake", "sake\tsake", r"x\.conllu, line 7 has the ID 'sake'; the first column of CoNLL-U is a number"),
        ("NOUN", "_", r"x\.conllu, line 7 has no tag, its fourth column, UPOS, is _"),
        ("\t_\t_\n", "\t_\n", r"x\.conllu, line 1 has one column, '# sent_id = b0'"),
    ],
)
def test_what_is_not_quite_conll_u_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_tagged(write(tmp_path, "x.conllu", CONLL_U.replace(old, new)), COLUMNS)


@pytest.mark.parametrize(
    "content, message",
    [
        ("1 EU B-ORG\n2 calls O\n\n1 Peter B-PER\n", r"x\.conll has the numbers of its words as tokens"),
        ("1 _ _ X _ _ 0 _ _ _\n2 _ _ Y _ _ 1 _ _ _\n", r"x\.conll has no words, each is _"),
        ("# text = a\na O\n", r"x\.conll, line 1 has 4 columns, but the first word 2"),
        ("# a comment\na\tO\n", r"x\.conll, line 1 has one column, '# a comment'"),
        ("a\tO\nb X O\n", r"x\.conll, line 2 has one column, 'b X O'"),
        ("a O\u00a0\n", r"x\.conll, line 1 has the label 'O\\xa0'"),
        ("a O\nb\n", r"x\.conll, line 2 has one column, 'b'; a line is a token and its tag"),
        ("a O\n\n\tO\n", r"x\.conll, line 3 has one column, 'O'"),
        ("a\tO\nb\t\n", r"x\.conll, line 2 has one column, 'b'"),
        ("", r"x\.conll is empty"),
        ("\n \n-DOCSTART- O\n", r"x\.conll holds no sentence; give a file of `token tag` lines"),
        (b"a O\n\xff O\n", r"x\.conll, line 2 is not UTF-8 text: byte 4 is 0xff"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_tagged(write(tmp_path, "x.conll", content), COLUMNS)


def test_lines_of_json_hold_lists(tmp_path: Path) -> None:
    lines = [{"words": words, "id": 1, "ner": tags} for words, tags, _ in SENTENCES]
    path = write(tmp_path, "x.jsonl", "\n".join(map(json.dumps, lines)))
    found, _ = read_tagged(path, ("words", "ner"))
    assert [(one.words, one.tags) for one in found] == [(words, tags) for words, tags, _ in SENTENCES]
    assert [found[1].place, found[1].place_of(1)] == [f"{path}, line 2"] * 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"tokens": ["a"]}, r"x\.jsonl, line 1 names no 'tags', it names tokens"),
        ({"tokens": "a", "tags": ["O"]}, r"x\.jsonl, line 1 has a 'tokens' that is not a list of strings"),
        ({"tokens": ["a"], "tags": [0]}, r"x\.jsonl, line 1 has a 'tags' that is not a list of strings"),
        ({"tokens": [], "tags": []}, r"x\.jsonl, line 1 has a 'tokens' that is not a list of strings"),
        ({"tokens": ["a", "b"], "tags": ["O"]}, r"x\.jsonl, line 1 has 2 tokens, but 1 tags"),
    ],
)
def test_bad_lines_of_json_are_refused(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_tagged(write(tmp_path, "x.jsonl", json.dumps(line)), COLUMNS)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.conll is not a file; give a file of `token tag` lines"):
        read_tagged(str(tmp_path / "no.conll"), COLUMNS)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., TaggedTextDataModule]:
    """Builds a data module from these texts and options; test is val, which defaults to train."""

    def make(train: str = TEXT, val: str | None = None, **options: Any) -> TaggedTextDataModule:
        held_out = write(tmp_path, "val.conll", val or train)
        defaults = {"val": held_out, "test": held_out, "max_len": 10, "max_tokens": 100}
        return TaggedTextDataModule(write(tmp_path, "train.conll", train), **{**defaults, **options})

    return make


def test_a_batch_by_hand(make: Callable[..., TaggedTextDataModule]) -> None:
    data = make(val="Peter B-PER\nrejects O\nFrance O\n\nEU B-ORG\n")
    data.setup("fit")
    assert data.labels == ["B-MISC", "B-ORG", "B-PER", "I-PER", "O"]
    assert (data.num_classes, data.seq_len, data.vocab_size) == (5, 10, 4 + 6)
    [batch] = data.val_dataloader()
    peter, rejects, eu = data.tokenizer.encode("Peter rejects EU")
    assert batch.inputs.tolist() == [[peter, rejects, 3], [eu, 0, 0]]
    assert batch.pad_mask.tolist() == [[True, True, True], [True, False, False]]
    assert batch.targets.tolist() == [[2, 4, 4], [1, IGNORE, IGNORE]]
    assert data.describe()["splits"]["train"] == {"texts": 2, "tokens": 6}
    assert (data.describe()["name"], data.describe()["labels"]) == ("tagged", data.labels)


def test_a_tag_that_train_lacks_is_refused_with_its_line(make: Callable[..., TaggedTextDataModule]) -> None:
    with pytest.raises(
        ValueError, match=r"val\.conll, line 4 has the label 'B-LOC', which the train split lacks; it has B-MISC, B-ORG"
    ):
        make(val="EU B-ORG\n\nin O\nFrance B-LOC\n").setup("fit")


@pytest.mark.parametrize("word", ["New York", "10\u00a0000", "\u00a0"])
def test_a_token_with_whitespace_is_refused_with_its_line(make: Callable[..., TaggedTextDataModule], word: str) -> None:
    with pytest.raises(ValueError, match=r"train\.conll, line 2 has the token .*, in which there is whitespace"):
        make(f"a\tO\n{word}\tB\n").setup("fit")


@pytest.mark.parametrize("on_long, lengths", [("drop", [2]), ("cut", [3, 2])])
def test_long_sentences_are_dropped_or_cut_and_counted(
    make: Callable[..., TaggedTextDataModule], capsys: pytest.CaptureFixture[str], on_long: str, lengths: list[int]
) -> None:
    data = make(max_len=3, on_long=on_long, val="EU O\n")
    data.setup("fit")
    reason = f"train: over 3 tokens, {'dropped' if on_long == 'drop' else 'cut'}"
    assert data.dropped == data.describe()["dropped"] == {reason: 1}
    assert capsys.readouterr().err == f"data: {reason}: 1\n"
    [batch] = data.train_dataloader()
    assert batch.rows is not None and batch.rows.tolist() == list(range(len(lengths)))
    assert data.place("train", len(lengths) - 1).endswith(f"line {SENTENCES[-1][2][0]}")
    assert batch.pad_mask.sum(dim=1).tolist() == lengths
    assert ((batch.targets != IGNORE) == batch.pad_mask).all()


def test_a_long_sentence_is_refused_by_default(make: Callable[..., TaggedTextDataModule]) -> None:
    with pytest.raises(ValueError, match=r"train\.conll, line 3 has a text of 4 tokens, but data\.max_len 3"):
        make(max_len=3).setup("fit")


def many(count: int) -> str:
    """Sentences of 1 to 5 words, each word once, tagged by its place modulo 3."""
    numbers = iter(range(10_000))
    sentences = [[next(numbers) for _ in range(1 + i % 5)] for i in range(count)]
    return "\n".join("".join(f"w{n} {'OBI'[n % 3]}\n" for n in sentence) for sentence in sentences)


def test_words_keep_their_tags(make: Callable[..., TaggedTextDataModule]) -> None:
    data = make(many(53), max_tokens=20)
    pairs = [
        (data.tokenizer.decode([token]), data.labels[tag])
        for batch in data.val_dataloader()
        for token, tag in zip(batch.inputs.flatten().tolist(), batch.targets.flatten().tolist(), strict=True)
        if tag != IGNORE
    ]
    assert Counter(pairs) == Counter((f"w{n}", "OBI"[n % 3]) for n in range(len(pairs)))
    assert len(pairs) == sum(1 + i % 5 for i in range(53))


def test_the_order_is_shared_resumed_and_the_same_for_workers(make: Callable[..., TaggedTextDataModule]) -> None:
    check_order(partial(make, many(53), max_tokens=20), 53)


def test_one_file_is_divided_by_its_sentences(tmp_path: Path) -> None:
    path = write(tmp_path, "all.conll", many(300) + "\n" + many(300))
    data = TaggedTextDataModule(path, split=(0.6, 0.2, 0.2))
    texts = {name: Counter(sentence.text for sentence in some) for name, some in data._examples.items()}
    assert sum(counts.total() for counts in texts.values()) == 600
    assert all(count == 2 for counts in texts.values() for count in counts.values())
    assert all(abs(len(texts[name]) - 300 * share) < 45 for name, share in (("train", 0.6), ("val", 0.2)))
