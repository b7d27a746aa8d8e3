"""A checkpoint with something missing, of another shape or kind, or too large, and a list that a file stores once and
names 2^40 times, in checkpoints, configs and YAML: one sentence, before memory or time."""

from __future__ import annotations

import copy
import io
import json
import resource
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import torch
import yaml

from cli.conftest import Seqlab
from seqlab.checkpoints.checksummed_file import Hashing, load_checksummed, save_checksummed
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint
from seqlab.config.configs import load_short_yaml, read_config
from seqlab.config.trust import check_trust
from seqlab.files.plain_values import MOST_VALUES, check_count, load_quickly, read_yaml

Checkpoint = dict[str, Any]
MODEL = "seqlab.config.model.init_args.model"
WEIGHT = "model.stack.blocks.0.mixer.q_proj.weight"
GONE = object()
WRONG: dict[str, tuple[Any, ...]] = {
    "seqlab": (GONE, None, "text", 3, []),
    "seqlab.config": (GONE, None, "text", [], {}, json.loads('{"config": ' * 120 + "1" + "}" * 120)),
    "seqlab.config.model": (GONE, None, "text", [], {}, {"class_path": 3}, {"init_args": {}}),
    "seqlab.config.data": ("text", [], {"class_path": "seqlab_data.TextDataModule", "init_args": []}),
    "seqlab.told": (GONE, None, [], {"vocab_size": "many"}, {"vocab_size": 2.5}, {"vocab_size": -1}, {"evil": 1}, {}),
    "seqlab.told.vocab_size": (7, 10**12, True),
    "seqlab.labels": ("text", {}, [3]),
    "seqlab.run_id": (3, []),
    "seqlab.tokenizer": ("text", 3, [], {"class": "CharTokenizer"}, {"class": "Evil", "assets": {}, "vocab_size": 3}),
    "seqlab.tokenizer.assets": (GONE, None, [], {"tokens": 3}),
    "seqlab.tokenizer.class": (GONE, None, 3, "os.system", ["CharTokenizer"]),
    "seqlab.tokenizer.vocab_size": (GONE, "many", 3),
    "state_dict": (GONE, None, "text", [], {}, {WEIGHT: 3}),
    f"state_dict/{WEIGHT}": (
        *(GONE, None, 3, "text", torch.zeros(3), torch.zeros(16, 17), torch.zeros(1).expand(10**6, 10**6)),
        *(torch.zeros(16, 16, dtype=torch.int64), torch.zeros(16, 16, dtype=torch.complex64)),
        *(torch.zeros(16, 16).to_sparse(), torch.zeros(16, 16, device="meta")),
    ),
    "state_dict/model.stranger": (torch.zeros(3),),
    f"{MODEL}.class_path": (3, None, "DecoderLLM", "seqlab.models.Classifier", "seqlab.nn.GELU"),
    f"{MODEL}.init_args": (None, "text", [3], {"stranger": 1}),
    f"{MODEL}.init_args.num_layers": (0, -1, 2, 10**7, 10**30, "many", 1.5, None),
    f"{MODEL}.init_args.d_model": (0, -1, 32, 10**9, 10**30, "wide", None),
    f"{MODEL}.init_args.mixer": (3, [], ["seqlab.recurrence.GRU"] * 300_000, {"class_path": "seqlab.recurrence.GRU"}),
    f"{MODEL}.init_args.mixer.init_args.num_heads": (0, -1, 3, 10**9),
    f"{MODEL}.init_args.mixer.init_args.head_dim": (10**9, 10**18),
    f"{MODEL}.init_args.positions": ({"class_path": "seqlab.positions.Learned"},),
    f"{MODEL}.init_args.block.init_args.ffn.init_args": ({"d_ff": 10**12},),
    f"{MODEL}.init_args.block.init_args.norm": ({"class_path": "seqlab.nn.LayerNorm", "init_args": {"eps": "x"}},),
}
"""Values that cannot be, by their place."""
TRAINING: dict[str, tuple[Any, ...]] = {
    "loops": (GONE, "text", {}, {"fit_loop": 3}),
    "loops/fit_loop/epoch_progress": (GONE, 3),
    "loops/fit_loop/epoch_loop.batch_progress/current/ready": (GONE, "text", None),
    "optimizer_states": (GONE, "text", [], [3], [{}]),
    "optimizer_states/0/param_groups": (GONE, [], 3),
    "optimizer_states/0/state/0/exp_avg": (torch.zeros(3), "text"),
    "lr_schedulers": (GONE, [], [3], [{"last_epoch": "x"}]),
    "callbacks": ("text", 3),
    "pytorch-lightning_version": (GONE, 3, "x.y"),
}
"""The same of what only `resume` reads."""
MEGABYTES = 600


def tampered(checkpoint: Checkpoint, wrong: dict[str, tuple[Any, ...]]) -> Iterator[tuple[str, Checkpoint]]:
    for place, values in wrong.items():
        *parents, last = place.split("/" if "/" in place else ".")
        for value in values:
            found = copy.deepcopy(checkpoint)
            part: Any = found
            for name in parents:
                part = part[int(name)] if isinstance(part, list) else part[int(name) if name.isdigit() else name]
            if value is GONE:
                del part[last]
            else:
                part[last] = value
            yield f"{place}: {'gone' if value is GONE else str(value)[:40]}", found


@pytest.fixture
def copied(
    fitted: Path, tmp_path: Path, inside: Callable[[Path], Seqlab], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, Seqlab]]:
    """The last checkpoint of the run `first`, to be written over, and a command in another folder."""
    (last,) = fitted.glob("mlruns/tiny/*/artifacts/checkpoints/last.ckpt")
    kept = last.read_bytes()
    shutil.copy(fitted / "text.txt", tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{fitted}/mlruns/mlflow.db")
    yield last, inside(tmp_path)
    last.write_bytes(kept)


@pytest.mark.slow
def test_a_model_that_cannot_be_is_refused_in_a_sentence(copied: tuple[Path, Seqlab], tmp_path: Path) -> None:
    last, seqlab = copied
    found = list(tampered(read_checkpoint(last), WRONG))
    assert len(found) >= 70
    for what, checkpoint in found:
        AtomicCheckpointIO().save_checkpoint(checkpoint, tmp_path / "tampered.ckpt")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (line,) = seqlab("generate", "tampered.ckpt", "--max-new-tokens=1", code=2).stderr.strip().splitlines()
        assert "tampered.ckpt" in line and len(line) < 1000, (what, line)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1024, what


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_training_state_that_cannot_be_is_refused_in_a_sentence(copied: tuple[Path, Seqlab]) -> None:
    last, seqlab = copied
    for what, checkpoint in tampered(read_checkpoint(last), TRAINING):
        AtomicCheckpointIO().save_checkpoint(checkpoint, last)
        said = seqlab("resume", "first", "--trainer.max_steps=6", "--experiment=tiny", code=2).stderr
        (told,) = (line for line in said.splitlines() if line.startswith("seqlab: "))
        assert len(told) < 1000 and "Traceback" not in said, (what, said)


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


YAMLS = (
    "a: [1, {b: null}]\nc: 1e-3\nd: 'x'\n",
    "",
    "- !!python/object:os.system {}",
    "a: [1, 2",
    "a: b: c",
    "a: \x00",
    "? x",
)


@pytest.mark.parametrize("text", [*YAMLS, "[" * 100_000, "- " * 3000, "{a: " * 3000 + "}" * 3000])
def test_yaml_that_is_read_quickly_is_what_it_is_otherwise(text: str) -> None:
    """On deep texts libyaml would end the process."""

    def said(load: Any) -> Any:
        try:
            return read_yaml(text, load)
        except yaml.YAMLError as error:
            return str(error)

    assert said(load_quickly) == said(yaml.safe_load)


def test_a_stored_config_is_counted_before_it_is_walked() -> None:
    config = {"model": {"class_path": "seqlab.tasks.LanguageModeling", "init_args": {"model": doubled()}}}
    with pytest.raises(ValueError, match=r"^the stored config has more than 100000 values$"):
        check_trust(config, ["mine"])


@pytest.mark.parametrize(
    "value", [list(range(101_000)), ["x"] * 101_000, doubled(15)], ids=["numbers", "texts", "lists"]
)
def test_a_checkpoint_may_have_as_many_values_as_its_pickle_has_bytes(value: list[Any], tmp_path: Path) -> None:
    save_checksummed({"kept": value}, tmp_path / "some.ckpt")
    assert load_checksummed(tmp_path / "some.ckpt") == {"kept": value}


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
        load_checksummed(tmp_path / "some.ckpt")
    assert time.process_time() - start < 5


def test_what_is_shared_and_hashed_a_few_times_is_read(tmp_path: Path) -> None:
    betas, state = (0.9, 0.99), bytearray(b"bytes")
    kept: dict[Any, Any] = {
        (1, betas): betas,
        "set": {betas, 3},
        "groups": [{"betas": betas}] * 100,
        "state": [state, state],
    }
    save_checksummed(kept, tmp_path / "some.ckpt")
    assert load_checksummed(tmp_path / "some.ckpt") == kept


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
