"""Files that could be read, but as what they are not: each is refused by name, and its nearest neighbour is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from seqlab.trained.word_vectors import _is_number
from seqlab_data.arrays import read_images, read_table
from seqlab_data.documents import find_documents
from seqlab_data.labelled import read_examples
from seqlab_data.pairs import pairs_in, read_sides
from seqlab_data.tagged import read_tagged

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
SENTENCE = "the DT\ndog NN\n\n"


def tags(path: Path) -> list[tuple[str, ...]]:
    return [one.tags for one in read_tagged(str(path), ("tokens", "tags"))[0]]


def pairs(path: Path) -> list[str]:
    return [pair.target for pair in pairs_in(read_sides(str(path), ("source", "target")))]


def labelled(path: Path) -> object:
    return read_examples(str(path), text="text", label="label")


def documents(path: Path) -> object:
    return find_documents(str(path))[0].read()


@pytest.mark.parametrize("read", [tags, pairs, labelled, documents])
def test_a_pointer_of_git_lfs(read: Callable[[Path], object], tmp_path: Path) -> None:
    (path := tmp_path / "data.txt").write_text(POINTER)
    with pytest.raises(ValueError, match=r"data\.txt is a pointer of Git LFS \(`git lfs pull` fetches its file\)"):
        read(path)


@pytest.mark.parametrize("comment", ["# newdoc", "#newdoc 1", "# id"])
def test_a_comment_with_as_many_columns_as_a_word(comment: str, tmp_path: Path) -> None:
    (path := tmp_path / "tags.txt").write_text(SENTENCE + f"{comment}\n" + SENTENCE)
    with pytest.raises(ValueError, match=r"line 4 begins with '#.*, as no word has: leave comments out"):
        tags(path)


@pytest.mark.parametrize("text", ["# SYM\n", "#nlp ht\n\nsee NN\n#nlp ht\n"])
def test_a_word_may_begin_with_a_hash(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "tags.txt").write_text(SENTENCE + text)
    assert len(tags(path)) == 1 + text.count("\n\n") + 1


LONG = "come here at once\tkomm sofort her"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["1276\tLet's try.\t77\tVersuchen wir!", "5\tHi.\t6\tHallo."], "has ids in its first and third column"),
        (["Go.\tGeh.\tCC-BY 2.0 (France) #1", "Hi.\tHallo.\tCC-BY 2.0 (France) #2"], "has its licence in its third"),
        (["en\tde", LONG, LONG], "line 1 names languages, en and de; leave it out"),
    ],
)
def test_columns_that_are_no_texts(lines: list[str], said: str, tmp_path: Path) -> None:
    (path := tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=rf"pairs\.tsv.* {said}"):
        pairs(path)


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
    (path := tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    assert pairs(path) == [line.split("\t")[1] for line in lines]


@pytest.mark.parametrize(("label", "is_read"), [("a", True), ("a\0", False)])
def test_a_class_that_numpy_would_cut(label: str, is_read: bool, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"x": [[1.0], [2.0]], "y": ["b", label]}), path := tmp_path / "rows.parquet")
    if is_read:
        assert len(read_table(str(path), features=["x"], target="y")) == 2
        return
    with pytest.raises(ValueError, match=r"rows\.parquet .*it has 'a\\x00' in y, with a NUL character at its end"):
        read_table(str(path), features=["x"], target="y")


@pytest.mark.parametrize(
    ("text", "is_one"), [("1.5e-3", True), ("-2", True), ("1_0", False), ("\u0661", False), ("nan", False)]
)
def test_a_number_of_a_vector(text: str, is_one: bool) -> None:
    assert _is_number(text) == is_one


@pytest.mark.parametrize(("pixel", "is_read"), [(3e38, True), (4e38, False)])
def test_a_pixel_that_float32_cannot_hold(pixel: float, is_read: bool, tmp_path: Path) -> None:
    np.savez(tmp_path / "images.npz", images=np.array([[[0.0]], [[pixel]]]), labels=[0, 1])
    if is_read:
        assert len(read_images(str(tmp_path / "images.npz")).images) == 2
        return
    with pytest.raises(ValueError, match=r"images\.npz, image 1 has a pixel that is not a finite number"):
        read_images(str(tmp_path / "images.npz"))
