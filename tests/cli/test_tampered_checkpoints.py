"""A checkpoint with something missing, of another shape or kind, or too large: one sentence, before memory or time."""

from __future__ import annotations

import copy
import json
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import Seqlab
from seqlab.checkpoint_io import AtomicCheckpointIO, read_checkpoint

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
