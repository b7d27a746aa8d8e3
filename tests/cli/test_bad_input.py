"""Bad input: one clear sentence, exit code 2, no traceback, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch._utils import ExceptionWrapper

from cli.conftest import Seqlab, write_text
from seqlab.cli import main
from seqlab.config.errors import sentence

CASES = [
    (["--model.model.num_layer=3"], ["model.model.num_layer", "num_layers"]),
    (["--model.modle.d_model=3"], ["model.modle.d_model", "did you mean model?"]),
    (["--trainer.max_stepz=3"], ["trainer.max_stepz", "did you mean trainer.max_steps?"]),
    (["--data.seq_lenn=3"], ["data.seq_lenn", "did you mean seq_len?"]),
    (["--model.model.positions=RoPE"], ["RoPE", "GRU"]),
    (["--model.model.mixer=Attentoin"], ["Attentoin", "did you mean Attention?"]),
    (["--model.model.mixer=Grru"], ["Grru", "did you mean GRU?"]),
    (["--model.model.mixer=Zyx"], ["Zyx", "accepted: ", "LSTM", "Mamba2"]),
    (["--model.model.mixer=Attention", "--model.model.mixer.num_heads=5"], ["num_heads 5", "d_model 128"]),
    (["--model.model.mixer={class_path: Attention, init_args: {num_heds: 5}}"], ["mixer.num_heds", "num_heads"]),
    (["--model.model.mixer={class_path: Attention, init_args: {num_heads: x}}"], ["mixer.num_heads: ", "int", "x"]),
    (["--model.model.d_model=abc"], ["model.model.d_model: Expected an int", "abc"]),
    (["--model.model.block.norm_place=middle"], ["norm_place", "pre", "post", "middle"]),
    (["--data.path=missing.txt"], ["missing.txt"]),
    (["--data.path=empty.txt"], ["empty.txt", "empty"]),
    (["--data.path=latin1.txt"], ["latin1.txt", "byte 3"]),
    (["--data.path=short.txt"], ["128"]),
    (["--trainer.precision=16-mixed", "--data.path=text.txt", "--data.seq_len=16"], ["16-mixed"]),
    (["--trainer.val_check_interval=0.5"], ["val_check_interval", "check_val_every_n_epoch"]),
    (["--trainer.accelerator=cuda"], ["accelerator", "cpu"]),
    (["--ckpt_path=nowhere"], ["no runs yet"]),
    (["--ckpt_path=last"], ["unfinished", "none"]),
    (["--run_name=caf\udce9"], ["is not UTF-8", "caf"]),
    (["--data.path=caf\udce9.txt"], ["is not UTF-8", "caf"]),
]


@pytest.mark.parametrize(("args", "said"), CASES, ids=[case[0][-1] for case in CASES])
def test_fit_says_in_one_sentence_what_is_wrong(
    args: list[str],
    said: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    write_text(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin1.txt").write_bytes("caf\xe9 au lait".encode("latin-1"))
    (tmp_path / "short.txt").write_text("too short")
    assert main(["fit", "--config", "lm/gru", *args]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("seqlab: "), lines
    assert "Union" not in lines[0]
    for text in said:
        assert text in lines[0]
    assert ("did you mean" in lines[0]) + ("accepted: " in lines[0]) < 2 and len(lines[0]) < 500
    assert not [path for path in tmp_path.glob("mlruns/*/*") if path.name != ".lock"], "a refused fit leaves no run"


@pytest.mark.slow
def test_as_typed_there_is_one_sentence_and_the_traceback_only_for_debugging(seqlab: Seqlab) -> None:
    args = ("fit", "--config", "lm/gru", "--model.model.positions", "RoPE")
    loading, *said = seqlab(*args, code=2).stderr.strip().splitlines()
    assert loading == "seqlab fit: loading PyTorch and Lightning" and len(said) == 1
    assert "Traceback" in seqlab(*args, code=1, SEQLAB_DEBUG="1").stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["fit", "--config", "lm/gruu"], "did you mean lm/gru?"),
        (["configs", "lm/gruu"], "did you mean lm/gru?"),
        (["configs", ""], "neither a file nor a packaged config"),
        (["generate", "nobody"], "no runs yet"),
        (["promote", "nobody"], "no runs yet"),
        (["compare", "--metrik", "val/loss"], "--metrik"),
        (["compare", "--experiment", "none"], "no runs yet"),
        (["verify", "nothing"], "nothing"),
        (["generate", "nobody", "--temperature", "-1"], "temperature"),
        (["generate", "nobody", "--top-p", "2"], "top_p"),
    ],
)
def test_other_verbs(
    args: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and said in lines[0], lines


def test_a_working_folder_that_was_deleted_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert main(["compare"]) == 2
    assert capsys.readouterr().err == "seqlab: the working folder was deleted; change to one that is there\n"


def test_what_a_process_that_loads_batches_says_is_the_sentence() -> None:
    try:
        raise ValueError("train.bin is damaged at byte 3:\ndelete it")
    except ValueError:
        reported = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(ValueError, match="Traceback") as told:
        reported.reraise()
    assert sentence(told.value) == "train.bin is damaged at byte 3:\ndelete it"
