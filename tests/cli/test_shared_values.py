"""A list that a file stores once and names 2^40 times is counted, not walked: in checkpoints, configs and YAML."""

from __future__ import annotations

import io
import time
import zipfile
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import torch
import yaml

from cli.conftest import Seqlab
from cli.test_tampered_checkpoints import copied as copied
from seqlab.checkpoint_io import AtomicCheckpointIO, read_checkpoint
from seqlab.config.configs import load_short_yaml, read_config
from seqlab.config.trust import check_trust
from seqlab.plain_values import MOST_VALUES, check_count, read_yaml
from seqlab.sealed_file import Hashing, load_sealed, save_sealed

NAMES = [*pairwise(ascii_lowercase)]
LISTS = "a: &a [x, x]\n" + "".join(f"{new}: &{new} [*{old}, *{old}, *{old}]\n" for old, new in NAMES)
MERGED = "a: &a {x: 1}\n" + "".join(f"{new}: &{new} {{<<: [*{old}, *{old}, *{old}]}}\n" for old, new in NAMES)


def doubled(times: int = 40) -> list[Any]:
    value: list[Any] = ["x"]
    for _ in range(times):
        value = [value, value]
    return value


def test_values_count_each_time_they_are_named() -> None:
    endless: dict[str, Any] = {}
    endless["itself"] = (endless,)
    check_count("it", [None] * (MOST_VALUES - 1))
    check_count("it", doubled(3), most=23)  # 8 texts, and 15 lists around them
    for value, most in (([None] * MOST_VALUES, MOST_VALUES), (doubled(3), 22), (endless, 100)):
        with pytest.raises(ValueError, match=rf"^it has more than {most} values$"):
            check_count("it", value, most=most)


@pytest.mark.parametrize("text", [LISTS, MERGED, "a: &a [*a]\n"], ids=["lists", "merged", "itself"])
def test_aliases_of_yaml_are_counted_before_they_are_made(text: str, tmp_path: Path) -> None:
    start = time.process_time()
    with pytest.raises(yaml.YAMLError, match="its aliases make more than 100000 values"):
        load_short_yaml(text)
    (tmp_path / "bomb.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"bomb\.yaml is not YAML: its aliases"):
        read_config(str(tmp_path / "bomb.yaml"))
    assert time.process_time() - start < 10


def test_a_few_aliases_are_as_they_were() -> None:
    assert read_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n") == {
        "a": {"x": 1},
        "b": {"x": 1, "y": 2},
        "c": [{"x": 1}, {"x": 1}],
    }


def test_a_stored_config_is_counted_before_it_is_walked() -> None:
    config = {"model": {"class_path": "seqlab.tasks.LanguageModeling", "init_args": {"model": doubled()}}}
    with pytest.raises(ValueError, match=r"^the stored config has more than 100000 values$"):
        check_trust(config, ["mine"])


@pytest.mark.parametrize(
    "value", [list(range(101_000)), ["x"] * 101_000, doubled(15)], ids=["numbers", "texts", "lists"]
)
def test_a_checkpoint_may_have_as_many_values_as_its_pickle_has_bytes(value: list[Any], tmp_path: Path) -> None:
    save_sealed({"kept": value}, tmp_path / "some.ckpt")
    assert load_sealed(tmp_path / "some.ckpt") == {"kept": value}


def pickled(values: bytes) -> bytes:
    """A pickle of a dict of keys and values."""
    return b"\x80\x02}(" + values + b"u."


X, A, SET = b"X\x01\0\0\0x", b"X\x01\0\0\0a", b"c__builtin__\nset\n"
TUPLES = X + b"\x85q\0" + b"h\0\x86q\0" * 60  # a tuple of twice the one before it
NUMBERS = b"]q\0(" + b"".join(b"J" + number.to_bytes(4, "little") for number in range(20_000)) + b"e"
PICKLES = {
    "a key": (TUPLES + b"K\x01", "more than 100000 values"),
    "a set": (A + SET + b"]" + TUPLES + b"a\x85R", "more than 100000 values"),
    "sets": (A + NUMBERS + X + b"](" + (SET + b"h\0\x85R") * 20_000 + b"e", r"more than \d+ values"),
    "a bytearray": (A + b"c__builtin__\nbytearray\n\x8a\x05\0\0\0\0\x40\x85R", "a bytearray of a length"),
    "itself": (A + b"]q\0h\0a", "holds itself"),
    "itself in a tuple": (A + b"]q\0h\0\x85a", "holds itself"),
    "nothing": (A + b"R", "takes values that are not there"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_reading_a_pickle_takes_no_more_steps_than_it_has_bytes(name: str, tmp_path: Path) -> None:
    values, why = PICKLES[name]
    torch.save({}, made := io.BytesIO())
    with zipfile.ZipFile(made) as parts, zipfile.ZipFile(content := io.BytesIO(), "w") as changed:
        for part in parts.namelist():
            changed.writestr(part, pickled(values) if part.endswith("data.pkl") else parts.read(part))
    with (tmp_path / "some.ckpt").open("wb") as file:
        sealed = Hashing(file)
        sealed.write(content.getvalue())
        sealed.seal()
    start = time.process_time()
    with pytest.raises(ValueError, match=rf"some\.ckpt is damaged: .*{why}"):
        load_sealed(tmp_path / "some.ckpt")
    assert time.process_time() - start < 5


def test_what_is_shared_and_hashed_a_few_times_is_read(tmp_path: Path) -> None:
    betas, state = (0.9, 0.99), bytearray(b"bytes")
    kept: dict[Any, Any] = {
        (1, betas): betas,
        "set": {betas, 3},
        "groups": [{"betas": betas}] * 100,
        "state": [state, state],
    }
    save_sealed(kept, tmp_path / "some.ckpt")
    assert load_sealed(tmp_path / "some.ckpt") == kept


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["seqlab.config.data", "optimizer_states"])
def test_verbs_refuse_it_in_a_sentence(place: str, copied: tuple[Path, Seqlab], tmp_path: Path) -> None:
    last, seqlab = copied
    checkpoint = part = read_checkpoint(last)
    *parents, name = place.split(".")
    for parent in parents:
        part = part[parent]
    part[name] = doubled()
    for path in (last, tmp_path / "shared.ckpt"):
        AtomicCheckpointIO().save_checkpoint(checkpoint, path)
    for verb in (["generate", "shared.ckpt"], ["validate", "shared.ckpt"], ["resume", "first"]):
        [line] = seqlab(*verb, code=2).stderr.strip().splitlines()
        assert "its pickle has more than 100000 values" in line, verb
