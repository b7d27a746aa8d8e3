"""Every packaged config opens with its command, says what it is, fits, and its run is used again."""

from __future__ import annotations

import gc
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
import yaml
from jsonargparse import ArgumentParser

from cli.conftest import Seqlab
from cli.test_translate import write_data
from seqlab.config.configs import LINKS, config_names, config_path, import_blocks, load_short_yaml
from seqlab.config.stored_config import check_reads_back
from seqlab.tracking.runs import find_run
from seqlab.trained.load import load_run

SIZES = ("bert-large", "gpt2-large", "gpt2-medium", "gpt2-xl", "gpt3", "transformer-big")
ONE_OF_EACH = sorted({*config_names()} - {f"presets/{name}" for name in SIZES})
"""Without those that differ from another one by their numbers alone."""
STEPS = [
    "--trainer.max_steps=2",
    "--trainer.max_epochs=-1",
    "--trainer.val_check_interval=1",
    "--trainer.limit_val_batches=1",
]
SMALL = {"d_model": 16, "num_layers": 4, "num_heads": 2, "d_ff": 16, "seq_len": 16, "batch_size": 4, "num_train": 64}
TAGGED = "".join(f"anna\tB-PER\nsleeps\tO\nword{i}\tO\n\n" for i in range(90))
TEXTS = dict.fromkeys(("FILE", "tiny-shakespeare.txt"), "text.txt")
PAIRS = dict.fromkeys(("train.tsv", "en.txt,de.txt", "valid.en,valid.de"), "pairs.tsv")
FILES = TEXTS | PAIRS | {"SubwordTokenizer": "CharTokenizer"}


@pytest.mark.parametrize("name", config_names())
def test_it_opens_with_its_command_and_says_what_it_is(name: str) -> None:
    first, second, third, *_ = config_path(name).read_text(encoding="utf-8").splitlines()
    words = shlex.split(first)
    assert words[:5] == ["#", "seqlab", "fit", "--config", name]
    assert second.startswith("# ") and len(second) > 20
    assert third.startswith("# Measured") or name.startswith("presets/"), "what it gave, with seed, time and machine"


@pytest.fixture(scope="module", name="reader")
def _reader() -> ArgumentParser:
    """Reads a config's model and data as `fit` does, without the costly rest."""
    import_blocks()
    parser = ArgumentParser(exit_on_error=False, parser_mode="seqlab")
    parser.add_subclass_arguments(L.LightningModule, "model", required=True)
    parser.add_subclass_arguments(L.LightningDataModule, "data", required=True)
    for name in LINKS:
        parser.link_arguments(f"data.{name}", f"model.init_args.{name}", apply_on="instantiate")
    return parser


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_what_is_stored_of_it_reads_back_as_it_was(name: str, reader: ArgumentParser) -> None:
    short = load_short_yaml(config_path(name).read_text(encoding="utf-8"))
    given = reader.parse_object({"model": short["model"], "data": short["data"]}, defaults=False)
    with warnings.catch_warnings(action="ignore"):  # an error would let jsonargparse try another type
        stored = yaml.safe_load(reader.dump(given, skip_unset=False, skip_validation=True, format="yaml"))
    check_reads_back(reader, stored, given)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_its_run_is_loaded_exported_and_resumed(name: str, tmp_path: Path, quick: Seqlab) -> None:
    """Two steps and a batch of validation, by the command that the config opens with, and what was stored of them."""
    write_data(tmp_path)
    frames = np.random.default_rng(0).normal(size=(60, 9, 3))
    np.savez(tmp_path / "frames.npz", inputs=frames, targets=frames > 0)
    (tmp_path / "tagged.txt").write_text(TAGGED, encoding="utf-8")
    others = "tagged.txt" if name.startswith("tag/") else "labelled.txt"
    text = config_path(name).read_text(encoding="utf-8")
    words = shlex.split(text.splitlines()[0])[2:]
    command = [FILES.get(word, others if word.endswith((".txt", ".conll")) else word) for word in words]
    short = load_short_yaml(text)
    if short["data"]["class_path"] == "TextDataModule" and "--data.path" not in command:
        command.append("--data.path=text.txt")
    command += [*_smaller("--model", short["model"]), *_smaller("--data", short["data"])]
    gc.collect()  # the classes of modules' names that torch.export left, which jsonargparse would find
    assert "val/loss" in quick(*command, *STEPS, "--run_name=run").stderr

    run = find_run("run")
    assert load_run("run").config == run.config
    assert "next: seqlab" in quick("export", "run", "--out=bundle").stdout
    quick("resume", "run", "--trainer.max_steps=4")
    assert run.last_checkpoint is not None and torch.load(run.last_checkpoint)["global_step"] == 4


def _smaller(option: str, value: Any) -> Iterator[str]:
    """Options that make what a config builds small."""
    for key, inner in value.get("init_args", {}).items():
        if isinstance(inner, dict):
            yield from _smaller(f"{option}.{key}", inner)
        elif key in SMALL and isinstance(inner, int) and inner > SMALL[key]:
            yield f"{option}.{key}={SMALL[key]}"
        if isinstance(inner, dict) and inner.get("class_path") == "SubwordTokenizer":
            yield f"{option}.{key}=CharTokenizer"
