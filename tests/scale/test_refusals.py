"""Fits that cannot be spread over processes are refused in a sentence, before any process starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import TINY, write_text
from seqlab.cli import main

FIT = ["fit", "--config", "lm/attention-rope", *TINY, "--trainer.accelerator=cpu", "--trainer.logger=false"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tp=2"], "--tp 2 needs --trainer.strategy tp or fsdp2+tp"),
        (["--trainer.strategy=fsdp2", "--tp=2"], "--tp 2 needs --trainer.strategy tp or fsdp2+tp, got fsdp2"),
        (["--trainer.strategy=tp", "--tp=3"], "shards the model over all 2 ranks, got --tp 3; omit --tp"),
        (["--trainer.strategy=fsdp2+tp"], "needs --tp N, where N divides the 2 ranks, got None"),
        (["--trainer.strategy=fsdp2+tp", "--tp=3"], "needs --tp N, where N divides the 2 ranks, got 3"),
        (["--trainer.strategy=tp", "--trainer.devices=3"], "num_heads 4 cannot be divided evenly over 3 ranks"),
        (["--trainer.strategy=tp", "--model.model.mixer.num_kv_heads=1"], "num_kv_heads 1 cannot be divided evenly"),
        (
            ["--trainer.strategy=tp", "--model.model.block.ffn=GELU", "--model.model.block.ffn.d_ff=31"],
            "inner width 31",
        ),
        (["--trainer.strategy=tp", "--model.model.positions=ALiBi"], "ALiBi has per-head data that tensor parallelism"),
        (["--trainer.strategy=fsdp2", "--model.optimizer=Muon"], "Muon needs whole matrices, which --trainer.strategy"),
        (["--trainer.strategy=fsdp2", "--model.optimizer=Adafactor"], "Adafactor needs whole matrices"),
        (["--trainer.strategy=tp", "--model.model.mixer.parts=[AttentionSink]"], "AttentionSink has per-head data"),
    ],
)
def test_what_ranks_cannot_share_is_refused(
    flags: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main([*FIT, "--trainer.devices=2", *flags]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
