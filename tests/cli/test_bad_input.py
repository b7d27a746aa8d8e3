"""Bad input: one clear sentence, exit code 2, no traceback, nothing half-written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch._utils import ExceptionWrapper

from cli.conftest import Seqlab
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
    args: list[str], said: list[str], quick: Seqlab, tmp_path: Path
) -> None:
    (line,) = quick("fit", "--config", "lm/gru", *args, code=2).stderr.strip().splitlines()
    assert line.startswith("seqlab: ") and len(line) < 500
    assert "Union" not in line and all(text in line for text in said)
    assert ("did you mean" in line) + ("accepted: " in line) < 2
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
def test_other_verbs(args: list[str], said: str, quick: Seqlab) -> None:
    (line,) = quick(*args, code=2).stderr.strip().splitlines()
    assert said in line


def test_a_working_folder_that_was_deleted_is_told(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    quick = inside(tmp_path)
    tmp_path.rmdir()
    told = "seqlab: the working folder was deleted; change to one that is there\n"
    assert quick("compare", code=2).stderr == told


def test_what_a_process_that_loads_batches_says_is_the_sentence() -> None:
    try:
        raise ValueError("train.bin is damaged at byte 3:\ndelete it")
    except ValueError:
        reported = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(ValueError, match="Traceback") as told:
        reported.reraise()
    assert sentence(told.value) == "train.bin is damaged at byte 3:\ndelete it"
