"""Words of a fit: the table of the model, the last line, and nothing of Lightning's."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Timer
from rich.console import Console
from torch import nn

from callbacks.tiny_fit import fit
from seqlab.attention import Attention
from seqlab.callbacks.fit_summary import FitSummary, _why_early, closing_line, how_to_go_on
from seqlab.callbacks.summary import ModelTable, model_table
from seqlab.models import DecoderLM
from seqlab.nn.block import Block
from seqlab.nn.feed_forward import SwiGLU
from seqlab.nn.norm import RMSNorm
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, LSTM


def rows(model: nn.Module, seq_len: int) -> list[list[str]]:
    table = model_table(model, seq_len)
    return [list(cells) for cells in zip(*(column.cells for column in table.columns), strict=True)]


def test_each_block_tells_what_it_mixes_with() -> None:
    """Parameters by hand: embedding 11 x 8; a GRU of width 8 has 3 x (8 x 8 + 8 x 8 + 8 + 8) = 432; attention with
    1 of 2 heads for keys and values 8 x 8 + 8 + 2 (8 x 4 + 4) + 8 x 8 + 8 = 216; SwiGLU with 24 inside 3 x 8 x 24."""
    mixers: list[Any] = [GRU, GRU, partial(Attention, num_heads=2, num_kv_heads=1)]
    block = partial(Block, ffn=SwiGLU, norm=RMSNorm)
    model = DecoderLM(11, 5, d_model=8, num_layers=3, mixer=mixers, positions=NoPositions, block=block)
    rest, of_rest = " · SwiGLU · RMSNorm (pre)", 2 * 8 + 3 * 8 * 24
    assert rows(model, 5) == [
        ["embedding", "Embedding(11, 8)", "88", ""],
        ["positions", "NoPositions on embeddings", "0", ""],
        ["stack.blocks.0-1", "GRU" + rest, f"2 x {432 + of_rest:,}", "2 x 8"],
        ["stack.blocks.2", "Attention (2 heads, 1 for keys and values)" + rest, f"{216 + of_rest:,}", f"{2 * 5 * 4}"],
        ["stack.norm", "RMSNorm", "8", ""],
        ["total", "", f"{88 + 2 * 432 + 216 + 3 * of_rest + 8:,}", "56"],
    ]


def test_parameters_that_are_not_trained_are_told() -> None:
    model = DecoderLM(11, 5, d_model=8, mixer=LSTM, positions=NoPositions)
    model.embedding.requires_grad_(False)
    total = sum(p.numel() for p in model.parameters())
    assert rows(model, 5)[-1][:3] == ["total", f"{total - 88:,} of the parameters are trained", f"{total:,}"]


def test_a_model_without_mixers_has_a_table_too() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    of_layers = [["0", str(model[0]), "16", ""], ["2", str(model[2]), "5", ""]]
    assert rows(model, 5) == [*of_layers, ["total", "", "21", "0"]]


def test_the_table_fits_80_columns() -> None:
    file = io.StringIO()
    with torch.device("meta"):
        model = DecoderLM(50_000, 1024, d_model=512, num_layers=8)
    Console(file=file, width=80).print(model_table(model, 1024))
    assert all(len(line) <= 80 for line in file.getvalue().splitlines())
    assert "…" not in file.getvalue()


def test_a_fit_begins_with_the_table_and_ends_with_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None where it has left no checkpoint."""
    monkeypatch.chdir(tmp_path)
    fit(tmp_path / "run", [ModelTable(), FitSummary()], max_epochs=1)
    out, err = capfd.readouterr()
    assert err.splitlines()[0].split() == ["part", "Sequential", "parameters", "state", "at", "1024", "tokens"]
    assert out == ("Run 1f2e (1f2e) · best checkpoint run/checkpoints/best.ckpt · next: seqlab test 1f2e\n")
    fit(tmp_path / "fast", [FitSummary()], fast_dev_run=True)
    assert capfd.readouterr().out == ""


def test_the_line_names_the_run_or_else_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a command that a shell takes."""
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "last.ckpt")
    logger: Any = SimpleNamespace(run_id="1f2e3d4c5b6a", run_name="brave-owl-12")
    assert closing_line(logger, "", path) == (
        "Run brave-owl-12 (1f2e3d4c) · last checkpoint last.ckpt · "
        "next: seqlab export brave-owl-12 --out bundles/brave-owl-12"
    )
    assert closing_line(None, "", path) == "Checkpoint last.ckpt · next: seqlab export last.ckpt --out bundles/last"
    logger.run_name = "my run; $HOME"
    command = closing_line(logger, "best", "", trust=["mine", "data"]).partition("next: ")[2]
    named = ["seqlab", "export", "my run; $HOME", "--trust", "mine", "--trust", "data"]
    assert shlex.split(command) == [*named, "--out", "bundles/my run; $HOME"]
    assert how_to_go_on(logger, tmp_path, 3, ["mine"]).endswith("next: seqlab resume 1f2e3d4c --trust mine")


SCRIPT = """
import sys
from pathlib import Path
from callbacks.tiny_fit import fit
from seqlab.config.quiet import quiet
quiet()
fit(Path(sys.argv[1]), max_epochs=1)
fit(Path(sys.argv[1]), max_epochs=2)
"""


@pytest.mark.slow
def test_a_fit_and_its_resumption_say_nothing_by_themselves(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run")],
        env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(("seconds", "said"), [(0, "the time of --trainer.max_time is over"), (60, "")])
def test_a_fit_ends_early_where_its_time_is_over(seconds: int, said: str) -> None:
    trainer: Any = SimpleNamespace(should_stop=True, callbacks=[Timer({"seconds": seconds})])
    assert _why_early(trainer) == said
