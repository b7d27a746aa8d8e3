"""Files that could be read, but as what they are not: each is refused by name, and its nearest neighbour is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from data.helpers import refused, write
from seqlab.trained.word_vectors import _is_number
from seqlab_data.arrays import read_images, read_table
from seqlab_data.documents import find_documents
from seqlab_data.labelled import read_examples
from seqlab_data.pairs import pairs_in, read_sides
from seqlab_data.tagged import read_tagged

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
SENTENCE = "the DT\ndog NN\n\n"


def tags(path: str) -> list[tuple[str, ...]]:
    return [one.tags for one in read_tagged(path, ("tokens", "tags"))[0]]


def pairs(path: str) -> list[str]:
    return [pair.target for pair in pairs_in(read_sides(path, ("source", "target")))]


def labelled(path: str) -> object:
    return read_examples(path, text="text", label="label")


def documents(path: str) -> object:
    return find_documents(path)[0].read()


@pytest.mark.parametrize("read", [tags, pairs, labelled, documents])
def test_a_pointer_of_git_lfs(read: Callable[[str], object], tmp_path: Path) -> None:
    with refused(r"data\.txt is a pointer of Git LFS \(`git lfs pull` fetches its file\)"):
        read(write(tmp_path, "data.txt", POINTER))


@pytest.mark.parametrize("comment", ["# newdoc", "#newdoc 1", "# id"])
def test_a_comment_with_as_many_columns_as_a_word(comment: str, tmp_path: Path) -> None:
    with refused(r"line 4 begins with '#.*, which no word has; remove comments"):
        tags(write(tmp_path, "tags.txt", SENTENCE + f"{comment}\n" + SENTENCE))


@pytest.mark.parametrize("text", ["# SYM\n", "#nlp ht\n\nsee NN\n#nlp ht\n"])
def test_a_word_may_begin_with_a_hash(text: str, tmp_path: Path) -> None:
    assert len(tags(write(tmp_path, "tags.txt", SENTENCE + text))) == 1 + text.count("\n\n") + 1


LONG = "come here at once\tkomm sofort her"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["1276\tLet's try.\t77\tVersuchen wir!", "5\tHi.\t6\tHallo."], "has ids in its first and third column"),
        (["Go.\tGeh.\tCC-BY 2.0 (France) #1", "Hi.\tHallo.\tCC-BY 2.0 (France) #2"], "has a licence in its third"),
        (["en\tde", LONG, LONG], "line 1 names languages, en and de; leave it out"),
    ],
)
def test_columns_that_are_no_texts(lines: list[str], said: str, tmp_path: Path) -> None:
    with refused(rf"pairs\.tsv.* {said}"):
        pairs(write(tmp_path, "pairs.tsv", "\n".join(lines) + "\n"))


@pytest.mark.parametrize(
    "lines",
    [
        ["1276\teins\t77\tzwei", "a\teins\t6\tzwei"],  # references, one of which is a number
        ["Go.\tGeh.\tCC-BY 2.0", "Hi.\tHallo.\tServus."],
        ["he\tel", "she\tella", "it\tello"],  # a dictionary
        [LONG, "en\tde", LONG],
    ],
)
def test_texts_that_look_a_little_like_it(lines: list[str], tmp_path: Path) -> None:
    assert pairs(write(tmp_path, "pairs.tsv", "\n".join(lines) + "\n")) == [line.split("\t")[1] for line in lines]


def test_a_class_that_numpy_would_cut(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    parquet.write_table(pa.table({"x": [[1.0], [2.0]], "y": ["b", "a"]}), path)
    assert len(read_table(path, features=["x"], target="y")) == 2
    parquet.write_table(pa.table({"x": [[1.0], [2.0]], "y": ["b", "a\0"]}), path)
    with refused(r"rows\.parquet .*y has the value 'a\\x00', which ends with a NUL character"):
        read_table(path, features=["x"], target="y")


@pytest.mark.parametrize(
    ("text", "is_one"), [("1.5e-3", True), ("-2", True), ("1_0", False), ("\u0661", False), ("nan", False)]
)
def test_a_number_of_a_vector(text: str, is_one: bool) -> None:
    assert _is_number(text) == is_one


def test_a_pixel_that_float32_cannot_hold(tmp_path: Path) -> None:
    path = str(tmp_path / "images.npz")
    np.savez(path, images=np.array([[[0.0]], [[3e38]]]), labels=[0, 1])
    assert len(read_images(path).images) == 2
    np.savez(path, images=np.array([[[0.0]], [[4e38]]]), labels=[0, 1])
    with refused(r"images\.npz, image 1 has a pixel that is not a finite number"):
        read_images(path)
