"""Options of a fit along a user's path: averages, finders, weights to begin with, precisions, changed data, imports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
import yaml

from cli.conftest import TINY, Seqlab, before_steps, last_weights, same_weights, send, write_text
from seqlab.config.half_precision import HalfInputs
from seqlab.tasks.language_modeling import LanguageModeling
from seqlab.tracking.runs import find_run
from seqlab.trained.load import load_run
from seqlab.trained.same_vocabulary import check_vocabulary
from seqlab_data.tokenizers import CharTokenizer

GRU = ("fit", "--config", "lm/gru", *TINY)
FIT = (*GRU, "--trainer.max_steps=6", "--trainer.val_check_interval=9")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_the_average_is_what_is_kept(quick: Seqlab) -> None:
    quick("fit", "--config=lm/attention-nope", *TINY, "--ema=0.9", "--run_name=run", "--model.warmup_steps=0")
    quick("resume", "run", "--trainer.max_steps=8")
    losses = [value for _, value in find_run("run").history("val/loss")]
    found = re.search(r"val/loss\W+([\d.]+)", quick("validate", "run", "--trainer.limit_val_batches=2").stdout)
    assert len(losses) == 4 and found and float(found[1]) == pytest.approx(min(losses), rel=1e-5)
    quick("export", "run", "--out=bundle")
    quick("verify", "bundle")


def test_at_the_base_width_a_fit_is_the_one_without_mup(quick: Seqlab) -> None:
    """Bit for bit, dropout included; elsewhere it is another."""
    fit = (*GRU, "--model.model.dropout=0.1")
    for name, mup in (("plain", "false"), ("base", "16"), ("mup", "true")):
        quick(*fit, f"--mup={mup}", f"--run_name={name}")
    assert same_weights("plain", "base") and not same_weights("plain", "mup")
    said = quick("fit", "--config=lm/attention-nope", *TINY, "--mup=15", code=2).stderr
    assert "--mup 15: num_heads must divide d_model, got num_heads 4 and d_model 15" in said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_a_fit_with_mup_resumes_bit_for_bit_and_exports(quick: Seqlab) -> None:
    fit = ("fit", "--config=lm/attention-rope", *TINY, "--mup=8", "--model.schedule=Constant")
    quick(*fit, "--run_name=stopped")
    quick("resume", "stopped", "--trainer.max_steps=8")
    quick(*fit, "--trainer.max_steps=8", "--run_name=whole")
    assert same_weights("stopped", "whole")
    quick("export", "whole", "--out=bundle")
    quick("verify", "bundle")


FIND = (
    "--trainer.callbacks+=LearningRateFinder",
    "--trainer.callbacks.num_training_steps=20",
    "--trainer.callbacks+=BatchSizeFinder",
    "--trainer.callbacks.max_trials=3",
)


@pytest.mark.slow
def test_a_fit_with_finders_is_the_one_that_was_given_what_they_found(
    quick: Seqlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit; also where it was stopped, and began again by the same command."""
    said = quick(*FIT, *FIND, "--run_name=found").stderr
    found = find_run("found").config
    lr, size = found["model"]["init_args"]["lr"], found["data"]["init_args"]["batch_size"]
    assert f"LearningRateFinder: lr {lr:.4g}\n" in said and f"BatchSizeFinder: batch_size {size}\n" in said
    assert lr != 0.004 and size != 4 and found["trainer"]["callbacks"] is None
    assert not list(tmp_path.glob("**/.*.ckpt"))
    quick(*FIT, f"--model.lr={lr}", f"--data.batch_size={size}", "--run_name=given")
    assert same_weights("found", "given")
    with monkeypatch.context() as patch:

        def stop(task: LanguageModeling, batch_idx: int) -> None:
            if batch_idx == 3 and task.logger is not None:  # not in the search
                os.kill(os.getpid(), signal.SIGTERM)

        before_steps(patch, stop)
        again = (*FIT, f"--data.batch_size={size}", *FIND[:2], "--run_name=again", "--resume=auto")
        stopped = quick(*again, "--trainer.callbacks.max_lr=1", code=143)
    assert "LearningRateFinder: lr" in stopped.stderr
    kept = find_run("again").config["model"]["init_args"]["lr"]
    assert f"LearningRateFinder: lr {kept:.4g}\n" in quick(*again, "--trainer.callbacks.max_lr=1").stderr
    run = find_run("again")
    assert run.config["model"]["init_args"]["lr"] == kept and run.status == "FINISHED"


def test_what_is_no_option_is_not_looked_for(quick: Seqlab) -> None:
    finder = ("--trainer.callbacks+=LearningRateFinder", "--trainer.callbacks.attr_name=rate")
    (line,) = quick(*FIT, *finder, code=2).stderr.splitlines()
    assert line == "seqlab: LearningRateFinder searches for rate, which is not an option of LanguageModeling"


@pytest.mark.slow
def test_a_resume_says_which_data_changed_and_leaves_the_checkpoint(tmp_path: Path, quick: Seqlab) -> None:
    text = tmp_path / "text.txt"
    quick(*GRU, "--run_name=first")
    (last,) = tmp_path.rglob("last.ckpt")
    before, written = last.read_bytes(), text.read_text()
    resume = ("resume", "first", "--trainer.max_steps=6")
    for changed, said in (
        (f"é ß\n{written}", ("the data have changed since the checkpoint: the vocabulary had ", "(new: 'ß', 'é')")),
        (f"{written}the\n", ("the checkpoint was trained with data ",)),
    ):
        text.write_text(changed)
        line = quick(*resume, code=2).stderr.splitlines()[-1]
        assert line.startswith("seqlab: ") and all(words in line for words in said)
    assert last.read_bytes() == before
    text.write_text(written)
    quick(*resume)


STORED: dict[str, Any] = {
    "tokenizer": CharTokenizer("ab").to_dict(),
    "source_tokenizer": CharTokenizer("xy").to_dict(),
    "labels": ["bad", "good"],
    "told": {"vocab_size": 5},
}


def now(**changed: Any) -> Any:
    names: dict[str, Any] = {"tokenizer": CharTokenizer("ab"), "source_tokenizer": CharTokenizer("xy")}
    return SimpleNamespace(**{**names, "labels": ["bad", "good"], "vocab_size": 5, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokenizer": CharTokenizer("ac")}, r"the vocabulary had \d entries and has \d \(new: 'c'; gone: 'b'\)"),
        ({"source_tokenizer": CharTokenizer("x")}, r"the vocabulary of the sources had .* \(gone: 'y'\)"),
        ({"labels": ["good", "bad"]}, r"the list of labels had 2 entries and has 2 \(in another order\)"),
        ({"tokenizer": CharTokenizer("abcdefghijk")}, r"new: 'c', 'd', 'e', 'f', 'g' and 4 more"),
        ({"vocab_size": 9}, "vocab_size was 5 and is 9"),
    ],
)
def test_a_vocabulary_that_changed_is_named(changed: dict[str, Any], said: str) -> None:
    check_vocabulary(STORED, now())
    check_vocabulary({}, now(**changed))
    with pytest.raises(ValueError, match=said):
        check_vocabulary(STORED, now(**changed))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_names_of_500_characters_which_no_file_may_have_are_stored_and_found(quick: Seqlab) -> None:
    run, experiment = "r" * 500, "e" * 500
    quick(*GRU, f"--experiment={experiment}", f"--run_name={run}")
    assert quick("compare", "-q").stdout == quick("compare", "-q", f"--experiment={experiment}").stdout != ""
    assert quick("generate", run, "--prompt=the", "--max-new-tokens=2").stdout
    assert run in quick("resume", run, "--trainer.max_steps=5").stdout


ENCODER = ["--model.model.encoder.d_model=16", "--model.model.encoder.num_layers=1"]
WORDS = ["red", "green", "blue", "cat", "dog", "sky", "sea"]


def encoder_weights(run: str) -> dict[str, torch.Tensor]:
    """Weights of a run's encoder, by name."""
    prefix = "model.encoder."
    return {name.removeprefix(prefix): value for name, value in last_weights(run).items() if name.startswith(prefix)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_encoder_goes_from_one_task_to_another(tmp_path: Path, quick: Seqlab) -> None:
    lines = [" ".join([*(WORDS[(i * k) % 7] for k in range(1, 6)), f"n{i}"]) for i in range(1, 200)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "labelled.txt").write_text("\n".join(f"{i % 2} {line}" for i, line in enumerate(lines)) + "\n")
    mlm = ["--data.path=text.txt", "--data.seq_len=32", "--data.tokenizer=WordTokenizer", *ENCODER]
    limits = ["--trainer.max_steps=4", "--trainer.val_check_interval=2"]
    quick("fit", "--config", "mlm/transformer", *mlm, *limits, "--run_name=mlm", "--experiment=mlm")
    before = encoder_weights("mlm")
    (stored,) = tmp_path.glob("mlruns/mlm/*/artifacts/tokenizer.json")

    options = ["--model.model.encoder.positions=Learned", "--model.model.encoder.block.ffn.ratio=4"]
    data = ["--data.train=labelled.txt", "--data.max_len=32", "--data.tokenizer=StoredTokenizer"]
    classify = ["fit", "--config", "classify/transformer", *data, f"--data.tokenizer.path={stored}", *ENCODER, *options]
    steps = ["--trainer.max_steps=3", "--encoder_from=mlm"]
    for name, freeze in (("frozen", True), ("tuned", False)):
        quick(*classify, *steps, f"--freeze_encoder={freeze}", f"--run_name={name}", f"--experiment={name}")
        after = encoder_weights(name)
        assert set(after) == set(before)
        assert len(after["embedding.weight"]) == len(before["embedding.weight"]) - 1
        same = [torch.equal(after[key], before[key][: len(after[key])]) for key in before]
        assert all(same) if freeze else not any(same)

    refused = quick(*classify, "--encoder_from=mlm", "--model.model.encoder.d_model=24", code=2).stderr
    assert "--encoder_from mlm: its model differs from this one: the checkpoint's embedding.weight has shape" in refused
    refused = quick(*classify, "--data.tokenizer.path=nowhere.json", code=2).stderr
    assert "nowhere.json is not a tokenizer" in refused


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_fit_begins_with_word_vectors_and_goes_on_without_the_file(tmp_path: Path, quick: Seqlab) -> None:
    (tmp_path / "labelled.txt").write_text("".join(f"{i % 2} {WORDS[i % 7]} word{i}\n" for i in range(80)))
    lines = [f"{word} {' '.join(str(i + k / 10) for k in range(16))}" for i, word in enumerate(WORDS)]
    (tmp_path / "v.txt").write_text("\n".join(lines) + "\n")
    fit = ["fit", "--config", "classify/bag-of-words", "--data.train=labelled.txt", "--model.model.d_model=16"]
    steps = ["--word_vectors=v.txt", "--model.lr=1e-9", "--trainer.max_epochs=1", "--run_name=words"]
    said = quick(*fit, *steps).stderr
    assert "word vectors: v.txt has 7 of the " in said

    run = load_run("words")
    embedded = run.model.embedding(torch.tensor(run.tokenizer.encode(" ".join(WORDS))))
    assert torch.allclose(
        embedded, torch.tensor([[i + k / 10 for k in range(16)] for i in range(7)]), rtol=0, atol=1e-5
    )
    assert "word_vectors: v.txt" in next(tmp_path.glob("mlruns/*/*/artifacts/config.yaml")).read_text()

    (tmp_path / "v.txt").unlink()
    assert "word vectors" not in quick("resume", "words", "--trainer.max_epochs=2").stderr
    assert "--word_vectors v.txt is not a file" in quick(*fit, *steps, code=2).stderr


def test_one_batch_is_not_all_of_them(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's types are these after `compare` in the same process."""
    limits = [f"limit_{split}_batches" for split in ("train", "val", "test", "predict")]
    for name in limits:
        monkeypatch.setitem(L.Trainer.__init__.__annotations__, name, float | int | None)
    said = quick("fit", "--config", "lm/gru", *(f"--trainer.{name}=1" for name in limits), "--print_config").stdout
    trainer = yaml.safe_load(said)["trainer"]
    assert [repr(trainer[name]) for name in limits] == ["1"] * 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize(("precision", "dtype"), [("bf16-true", torch.bfloat16), ("16-true", torch.float16)])
def test_half_precision_from_a_stopped_fit_to_a_proven_bundle(
    quick: Seqlab, monkeypatch: pytest.MonkeyPatch, precision: str, dtype: torch.dtype
) -> None:
    fit = (*FIT, f"--trainer.precision={precision}")
    with monkeypatch.context() as patch:
        send(patch, signal.SIGTERM, 3)
        quick(*fit, "--run_name=stopped", code=143)
    quick("resume", "stopped")
    plugins = set[type]()
    before_steps(monkeypatch, lambda task, _: plugins.add(type(task.trainer.precision_plugin)))
    quick(*fit, "--run_name=whole")
    assert ({weight.dtype for weight in last_weights("whole").values()}, plugins) == ({dtype}, {HalfInputs})
    assert same_weights("stopped", "whole")
    assert re.search(r"test/loss .* 3\.\d+", quick("test", "whole").stdout)
    assert "greedy" in quick("export", "whole", "--out=bundle").stdout
    quick("verify", "bundle")


UNNEEDED = {"matplotlib", "onnx", "onnxruntime", "sacrebleu", "scipy.signal", "scipy.stats", "seqeval", "sklearn"}
UNNEEDED |= {"seqlab_export.graphs", "transformers"}
LATER = {"alembic", "fastapi", "flask", "mlflow", "opentelemetry", "pandas", "pydantic", "sqlalchemy"}
"""After the first step."""
CALLBACK = """
import sys
from pathlib import Path
from lightning.pytorch.callbacks import Callback

class FirstStep(Callback):
    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == 1:
            Path("at the first step").write_text(" ".join(sys.modules))
            assert (Path(trainer.logger.artifacts) / "config.yaml").exists()
"""
SCRIPT = """
import sys
from seqlab.cli import main

write, first = sys.stderr.write, []
sys.stderr.write = lambda text: first.append((text, "torch" in sys.modules)) or write(text)
assert main(sys.argv[1:]) == 0
assert first[0] == ("seqlab fit: loading PyTorch and Lightning", False), first[0]
print(*sys.modules, file=open("modules", "w"))
"""


@pytest.mark.slow
def test_a_fit_imports_what_it_needs(tmp_path: Path) -> None:
    write_text(tmp_path)
    env = {**os.environ, "SEQLAB_CACHE": str(tmp_path / "cache")}
    (tmp_path / "first_step.py").write_text(CALLBACK)
    watched = "--trainer.callbacks=first_step.FirstStep"
    command = [sys.executable, "-c", SCRIPT, "fit", "--config=lm/gru", *TINY, watched]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    imported = set((tmp_path / "modules").read_text().split())
    assert {"torch", "lightning", "mlflow"} <= imported
    assert imported & UNNEEDED == set()
    assert {*(tmp_path / "at the first step").read_text().split()} & LATER == set()
