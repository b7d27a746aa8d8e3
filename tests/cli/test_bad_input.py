"""Bad input, and surroundings that a command cannot begin in: one clear sentence, exit code 2, nothing half-written."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from torch._utils import ExceptionWrapper

from cli.conftest import Seqlab
from cli.test_full_disk import file_size_limit
from seqlab.cli import _correct_environment, main
from seqlab.cli.fit import COUNTS
from seqlab.cli.serve import bounded
from seqlab.config.errors import sentence

TEXT = ("--data.path=text.txt", "--data.seq_len=16")
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
    (["--model.model.mixer=[GRU, {class_path: Attention, init_args: {num_heds: 5}}]"], ["mixer.num_heds", "num_heads"]),
    (["--model.model.d_model=abc"], ["model.model.d_model: Expected an int", "abc"]),
    (["--model.model.block.norm_place=middle"], ["norm_place", "pre", "post", "middle"]),
    (["--data.path=missing.txt"], ["missing.txt"]),
    (["--trainer.precision=16-mixed"], ["16-mixed, which a CPU does not have; give bf16-mixed or 32-true"]),
    (
        ["--trainer.precision=transformer-engine"],
        ["package transformer_engine, which is not installed", "pip install"],
    ),
    (["--trainer.logger=wandb"], ["wandb", "pip install"]),
    (["--trainer.logger+=TensorBoardLogger", "--trainer.logger.save_dir=tb"], ["tensorboard", "pip install"]),
    (["--trainer.val_check_interval=0.5"], ["val_check_interval", "check_val_every_n_epoch"]),
    (["--trainer.accelerator=cuda"], ["accelerator", "cpu"]),
    (["--ckpt_path=nowhere"], ["no runs yet"]),
    (["--ckpt_path=last"], ["unfinished", "none"]),
    (["--run_name=caf\udce9"], ["is not UTF-8", "caf"]),
    (["--data.path=caf\udce9.txt"], ["is not UTF-8", "caf"]),
]


@pytest.mark.parametrize(("value", "taken"), [("0", False), ("1", True), ("4096", True), ("4097", False), ("x", False)])
def test_a_number_of_threads_or_clients_is_bounded(value: str, taken: bool) -> None:
    if taken:
        assert bounded(value) == int(value)
    else:
        with pytest.raises(argparse.ArgumentTypeError):
            bounded(value)


def test_an_argument_that_is_missing_is_named_with_the_help_of_its_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 2
    assert capsys.readouterr().err == "seqlab: no RUN|BUNDLE; see seqlab serve --help\n"


@pytest.mark.parametrize(("args", "said"), CASES, ids=[case[0][-1] for case in CASES])
def test_fit_says_in_one_sentence_what_is_wrong(
    args: list[str], said: list[str], quick: Seqlab, tmp_path: Path
) -> None:
    (line,) = quick("fit", "--config", "lm/gru", *TEXT, *args, code=2).stderr.strip().splitlines()
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


MISSPELT = (
    "{data: {class_path: TextDataModule, seq_len: 8}, "
    "model: {class_path: LanguageModeling, model: {class_path: DecoderLM, mixer: GRUU}}}"
)
WITH_NO_SUCH_OPTION = "{data: {class_path: TextDataModule, seq_len: 8}, model: {class_path: LanguageModeling, lrr: 1}}"
ESTIMATE = ["estimate", "--config=presets/gpt2", "--tokens=1e9"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([*ESTIMATE, "--device=H300"], "--device H300 is not known; accepted: H100"),
        ([*ESTIMATE, "--mfu=2"], "--mfu in 0 to 1"),
        ([*ESTIMATE, "--price=-1"], "--price must be at least 0, got -1"),
        ([*ESTIMATE, f"--config={MISSPELT}"], "model.model.mixer: there is no class GRUU; did you mean GRU?"),
        ([*ESTIMATE, f"--config={WITH_NO_SUCH_OPTION}"], "seqlab: model.lrr is not an option; did you mean lr?"),
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
    told = "seqlab: the working folder was deleted; change to an existing one\n"
    assert quick("compare", code=2).stderr == told


def test_what_a_process_that_loads_batches_says_is_the_sentence() -> None:
    try:
        raise ValueError("train.bin is damaged at byte 3:\ndelete it")
    except ValueError:
        reported = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(ValueError, match="Traceback") as told:
        reported.reraise()
    assert sentence(told.value) == "train.bin is damaged at byte 3:\ndelete it"


FIT = ("fit", "--config=lm/gru")


@pytest.mark.parametrize("name", COUNTS)
def test_a_launchers_count_that_is_no_number(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told before Lightning is imported, which reads SLURM_PROCID then and names no variable."""
    monkeypatch.setattr("seqlab.cli.fit.import_lightning", lambda: pytest.fail("it is imported"))
    monkeypatch.setenv(name, "many")
    assert main([*FIT]) == 2
    assert f"seqlab: the environment variable {name} is 'many'; accepted: a whole number\n" in capsys.readouterr().err


@pytest.mark.parametrize("tasks", ["2", "1"])
def test_tasks_of_slurm_need_their_number_on_a_node(
    tasks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"SLURM_NTASKS": tasks, "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train"}.items():
        monkeypatch.setenv(name, value)
    assert main([*FIT, "--trainer.max_stepz=2"]) == 2
    said = capsys.readouterr().err
    assert ("give sbatch or srun --ntasks-per-node" in said) == (tasks == "2")
    assert ("max_stepz is not an option" in said) == (tasks == "1")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("of 3 GiB"), "no memory left of 3 GiB"),
        (ImportError("failed to map segment from shared object"), "a library cannot be loaded: failed to map segment"),
    ],
)
def test_a_memory_limit_is_told(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr("seqlab.cli._check_working_folder", fails)
    monkeypatch.setattr(sys, "unraisablehook", print)
    assert main(["compare"]) == 2
    assert sys.unraisablehook is not print  # what fails at Python's end says nothing more
    assert capsys.readouterr().err.startswith(f"seqlab: {said}")


CLOSED = f"seqlab: standard output is closed; give it a file, such as {os.devnull}\n"


@pytest.mark.parametrize(
    ("closed", "config", "code", "said"),
    [
        (">&-", "lm/gru", 2, CLOSED),
        ("<&- >&-", "lm/gru", 2, CLOSED),
        ("<&- 2>&-", "lm/gru", 0, ""),
        ("2>&-", "lm/none", 2, ""),
    ],
)
def test_only_a_closed_output_is_told(closed: str, config: str, code: int, said: str) -> None:
    """The command as a shell starts it that closes streams before."""
    script = f'exec "{sys.executable}" -m seqlab configs {config} {closed}'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr, "GRU" in done.stdout) == (code, said, code == 0)


def test_a_closed_input_is_told(beside_first: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    said = beside_first("generate", "first", "--prompt=-", code=2).stderr
    assert said.splitlines()[-1] == "seqlab: standard input is closed; texts are read there"


def test_a_home_that_is_no_folder_is_named(quick: Seqlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for name in ("SEQLAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    said = quick(*FIT, "--data.path=text.txt", code=2, HOME=str(tmp_path / "file")).stderr.splitlines()[-1]
    assert said.startswith(f"seqlab: cannot create the folder of the token caches, {tmp_path}/file/.cache/seqlab (")
    assert said.endswith("SEQLAB_CACHE, XDG_CACHE_HOME or HOME, of which the first that is set determines it")


def test_a_home_that_nobody_knows_is_told(quick: Seqlab) -> None:
    said = quick(*FIT, "--data.path=~no-such-user/x", code=2).stderr
    assert said.splitlines()[-1] == "seqlab: the user's home folder is unknown: set HOME, and use no path with ~"


def test_a_limit_of_files_is_told_where_a_temporary_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    with file_size_limit(0), pytest.raises(FileNotFoundError) as found:
        tempfile.gettempdir()
    with file_size_limit(0):
        said = sentence(found.value)
    why = "no temporary file can be written; files are limited to 0 bytes (ulimit -f)"
    assert said == f"{why}; the environment variable TMPDIR names another folder for them"


@pytest.mark.parametrize(
    ("paths", "left", "stays"), [(":", "", False), (":/x", "/x", False), (".:", ".", True), ("/x", "/x", True)]
)
def test_an_empty_entry_of_pythonpath_is_not_the_working_folder(
    paths: str, left: str, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PYTHONPATH=$PYTHONPATH:/x` leaves an empty entry where there was none before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", paths)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    _correct_environment()
    assert os.environ["PYTHONPATH"] == left
    assert (str(tmp_path) in sys.path) == stays


@pytest.mark.parametrize(("columns", "left"), [("0", None), ("1", "1")])
def test_a_terminal_without_columns_is_one_of_unknown_width(
    columns: str, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _correct_environment()
    assert os.environ.get("COLUMNS") == left
