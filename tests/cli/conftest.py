"""The command as the user types it, in a folder of its own, and one small run that the tests share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqlab.checkpoints.io import read_checkpoint
from seqlab.cli import main
from seqlab.tasks.language_modeling import LanguageModeling
from seqlab.tracking.runs import find_run

Seqlab = Callable[..., subprocess.CompletedProcess[str]]

TINY = [
    "--data.path=text.txt",
    "--data.seq_len=16",
    "--data.batch_size=4",
    "--model.model.d_model=16",
    "--model.model.num_layers=1",
    "--trainer.max_steps=4",
    "--trainer.val_check_interval=2",
    "--trainer.limit_val_batches=2",
    "--experiment=tiny",
]


def command(folder: Path) -> Seqlab:
    def seqlab(*args: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(Path(sys.executable).with_name("seqlab")), *args],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "SEQLAB_CACHE": str(folder / "cache"), **env},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return seqlab


def write_text(folder: Path) -> None:
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "box"]
    lines = (" ".join(words[(i * k) % len(words)] for k in range(1, 9)) for i in range(1, 120))
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def before_steps(monkeypatch: pytest.MonkeyPatch, do: Callable[[LanguageModeling, int], None]) -> None:
    """From now on it is called with a language model and the batch's number before each training step."""
    train = LanguageModeling.training_step

    def does(self: LanguageModeling, batch: Any, batch_idx: int) -> Any:
        do(self, batch_idx)
        return train(self, batch, batch_idx)

    monkeypatch.setattr(LanguageModeling, "training_step", does)


def send(monkeypatch: pytest.MonkeyPatch, signum: int, step: int) -> None:
    """Sends a signal to a fit of a language model before this step."""
    before_steps(monkeypatch, lambda task, batch_idx: os.kill(os.getpid(), signum) if batch_idx == step else None)


def last_weights(run: str) -> dict[str, torch.Tensor]:
    """Weights of a run's last checkpoint, by name."""
    checkpoint = find_run(run).last_checkpoint
    assert checkpoint is not None
    found: dict[str, torch.Tensor] = read_checkpoint(checkpoint)["state_dict"]
    return found


def same_weights(one: str, other: str) -> bool:
    """Bit for bit, and of the same names."""
    ones, others = last_weights(one), last_weights(other)
    return list(ones) == list(others) and all(torch.equal(weight, others[name]) for name, weight in ones.items())


@pytest.fixture
def seqlab(tmp_path: Path) -> Seqlab:
    write_text(tmp_path)
    return command(tmp_path)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Path], Seqlab]:
    """`command`, quicker: in this process, where Lightning is loaded already."""

    def entered(folder: Path) -> Seqlab:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("SEQLAB_CACHE", str(folder / "cache"))

        def seqlab(*args: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
            for name, value in env.items():
                monkeypatch.setenv(name, value)
            capsys.readouterr()
            try:
                found = main(list(args))
            except SystemExit as end:  # argparse's, after --print_config
                found = int(end.code or 0)
            said = capsys.readouterr()
            assert found == code, f"exit {found}\n{said.out}\n{said.err}"
            return subprocess.CompletedProcess(args, found, said.out, said.err)

        return seqlab

    return entered


@pytest.fixture
def quick(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    """The command in this process, in a new folder with a text."""
    write_text(tmp_path)
    return inside(tmp_path)


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run named `first`, an attention model with RoPE."""
    folder = tmp_path_factory.mktemp("fitted")
    write_text(folder)
    args = ["fit", "--config", "lm/attention-rope", *TINY, "--run_name=first"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SEQLAB_CACHE", str(folder / "cache"))
        patch.setattr(sys, "argv", ["seqlab", *args])
        assert main(args) == 0
    return folder


@pytest.fixture
def beside_first(fitted: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    """The command in this process, in the folder of the run `first`."""
    return inside(fitted)


@pytest.fixture
def theirs(fitted: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the run `first`."""
    shutil.copytree(fitted / "mlruns", tmp_path / "theirs" / "mlruns")
    shutil.copy(fitted / "text.txt", tmp_path / "theirs")
    return tmp_path / "theirs"
