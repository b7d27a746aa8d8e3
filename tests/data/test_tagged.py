"""TaggedTextDataModule: CoNLL's columns by hand, refusals with file and line, the order of the batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.helpers import check_divided, refused, write
from data.modules import as_tagged, tagged
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


VARIANTS = [TEXT, TEXT.replace(" ", "\t"), TEXT.replace(" ", "  ").replace("\n", " \t\n"), TEXT + "\n\n\n"]


@pytest.mark.parametrize("text", VARIANTS, ids=["spaces", "tabs", "more-spaces", "more-blank-lines"])
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


def changed(old: str, new: str) -> str:
    return CONLL_U.replace(old, new)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "x.conllu",
            changed("3\tsake\tsake", "3\tsake"),
            r"x\.conllu, line 7 has 9 columns, but the first word has 10",
        ),
        ("x.conllu", changed("\n\n1\tNo", "\n1\tNo"), "line 8 has the ID 1 after 3 words; .* a blank line separates"),
        ("x.conllu", changed("3\tsake", "sake\tsake"), "line 7 has the ID 'sake'; the first column of CoNLL-U is a n"),
        ("x.conllu", changed("NOUN", "_"), r"x\.conllu, line 7 has no tag: its fourth column, UPOS, is _"),
        ("x.conllu", changed("\t_\t_\n", "\t_\n"), r"x\.conllu, line 1 has one column, '# sent_id = b0'"),
        ("x.conll", "1 EU B-ORG\n2 calls O\n\n1 Peter B-PER\n", r"x\.conll has the numbers of its words as tokens"),
        ("x.conll", "1 _ _ X _ _ 0 _ _ _\n2 _ _ Y _ _ 1 _ _ _\n", r"x\.conll has no words: each is _"),
        ("x.conll", "# text = a\na O\n", r"x\.conll, line 1 has 4 columns, but the first word has 2"),
        ("x.conll", "# a comment\na\tO\n", r"x\.conll, line 1 has one column, '# a comment'"),
        ("x.conll", "a\tO\nb X O\n", r"x\.conll, line 2 has one column, 'b X O'"),
        ("x.conll", "a O\u00a0\n", r"x\.conll, line 1 has the label 'O\\xa0'"),
        ("x.conll", "a O\nb\n", r"x\.conll, line 2 has one column, 'b'; a line is a token and its tag"),
        ("x.conll", "a O\n\n\tO\n", r"x\.conll, line 3 has one column, 'O'"),
        ("x.conll", "a\tO\nb\t\n", r"x\.conll, line 2 has one column, 'b'"),
        ("x.conll", "\n \n-DOCSTART- O\n", r"x\.conll holds no sentence; give a file of `token tag` lines"),
        ("x.jsonl", '{"tokens": ["a"]}', r"x\.jsonl, line 1 has no 'tags'; it has tokens"),
        ("x.jsonl", '{"tokens": "a", "tags": ["O"]}', "line 1 has tokens that are not a list of strings"),
        ("x.jsonl", '{"tokens": ["a"], "tags": [0]}', "line 1 has tags that are not a list of strings"),
        ("x.jsonl", '{"tokens": [], "tags": []}', "line 1 has tokens that are not a list of strings"),
        ("x.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', r"x\.jsonl, line 1 has 2 tokens, but 1 tags"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with refused(message):
        read_tagged(write(tmp_path, name, content), COLUMNS)
    with refused(r"no\.conll is not a file; give a file of `token tag` lines"):
        read_tagged(str(tmp_path / "no.conll"), COLUMNS)


def test_a_batch_by_hand(tmp_path: Path) -> None:
    data = tagged(tmp_path, TEXT, val="Peter B-PER\nrejects O\nFrance O\n\nEU B-ORG\n")
    data.setup("fit")
    assert data.labels == ["B-MISC", "B-ORG", "B-PER", "I-PER", "O"]
    assert (data.num_classes, data.seq_len, data.vocab_size) == (5, 10, 4 + 6)
    [batch] = data.val_dataloader()
    peter, rejects, eu = data.tokenizer.encode("Peter rejects EU")
    assert batch.inputs.tolist() == [[peter, rejects, 3], [eu, 0, 0]]
    assert batch.pad_mask.tolist() == [[True, True, True], [True, False, False]]
    assert batch.targets.tolist() == [[2, 4, 4], [1, IGNORE, IGNORE]]
    turned = data.rows("val").read(np.array([1, 0]))
    assert torch.equal(turned.inputs, batch.inputs.flip(0)) and torch.equal(turned.targets, batch.targets.flip(0))
    assert data.describe()["splits"]["train"] == {"texts": 2, "tokens": 6}
    assert (data.describe()["name"], data.describe()["labels"]) == ("tagged", data.labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val": "EU B-ORG\n\nin O\nFrance B-LOC\n"}, r"val\.conll, line 4 has the label 'B-LOC', .* B-MISC, B-ORG"),
        ({"max_len": 3}, r"train\.conll, line 3 has a text of 4 tokens, but data\.max_len 3"),
        *(
            ({"train": f"a\tO\n{word}\tB\n"}, r"train\.conll, line 2 has the token .*, which contains whitespace")
            for word in ("New York", "10\u00a0000", "\u00a0")
        ),
    ],
)
def test_data_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with refused(message):
        tagged(tmp_path, **{"train": TEXT, **options}).setup("fit")


def test_one_file_is_divided_by_its_sentences(tmp_path: Path) -> None:
    texts = [f"text{i} of many" for i in range(300)] * 2
    data = TaggedTextDataModule(write(tmp_path, "x", "\n".join(as_tagged(texts))), split=(0.6, 0.3, 0.1))
    check_divided({name: [one.text for one in some] for name, some in data._examples.items()})
