"""A checkpoint never runs what it names: nothing is imported, one sentence, exit code 2, whatever verb takes it; and a
text of its config is a class only where it would be read as one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from cli.conftest import TINY, Seqlab
from cli.hostile import CANARY, MODEL, TARGETS, hostile_configs, with_value, write_traps
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint
from seqlab.config.trust import allowed, check_trust
from seqlab.files.working_folder import WorkingFolder, add_working_folder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
VERBS: tuple[Callable[[str], list[str]], ...] = (
    lambda run: ["generate", run, "--max-new-tokens=1"],
    lambda run: ["export", run, "--out=bundle"],
    lambda run: ["translate", run],
    lambda run: ["classify", run],
    lambda run: ["parity", "--models", run],
    lambda run: ["validate", run],
    lambda run: ["test", run],
    lambda run: ["predict", run],
)
FIT = ["fit", "--config", "lm/attention-rope", "--data.path=text.txt", "--data.seq_len=16", "--model.model.d_model=16"]


class Trapped(NamedTuple):
    """A working folder with traps and the checkpoint of the run `first`, whose artifacts are elsewhere."""

    folder: Path
    seqlab: Seqlab
    artifacts: Path
    checkpoint: dict[str, Any]

    def store(self, config: dict[str, Any]) -> None:
        """Makes it the config of `hostile.ckpt` and of the run."""
        hostile = self.checkpoint | {"seqlab": self.checkpoint["seqlab"] | {"config": config}}
        AtomicCheckpointIO().save_checkpoint(hostile, self.folder / "hostile.ckpt")
        (self.artifacts / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")

    def check(self) -> None:
        assert not (self.folder / CANARY).exists()
        assert not {"evil", "evil_package", "hubconf"} & sys.modules.keys()


@pytest.fixture(name="trapped")
def _trapped(
    fitted: Path,
    tmp_path: Path,
    inside: Callable[[Path], Seqlab],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Trapped]:
    config = next(fitted.glob("mlruns/tiny/*/artifacts/config.yaml"))
    kept = config.read_text(encoding="utf-8")
    write_traps(tmp_path)
    (tmp_path / "text.txt").write_bytes((fitted / "text.txt").read_bytes())
    seqlab = inside(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{fitted}/mlruns/mlflow.db")
    checkpoint = read_checkpoint(config.parent / "checkpoints" / "last.ckpt")
    yield Trapped(tmp_path, seqlab, config.parent, checkpoint)
    config.write_text(kept, encoding="utf-8")
    for name in ("evil", "evil_package", "mine"):
        sys.modules.pop(name, None)


def test_every_hostile_config_is_refused_before_anything_is_imported(trapped: Trapped) -> None:
    config = trapped.checkpoint["seqlab"]["config"]
    check_trust(config, [])
    assert not TARGETS.keys() & allowed().keys()
    found = list(hostile_configs(config))
    assert len(found) >= 200
    for what, hostile in found:
        before = json.dumps(hostile)
        with pytest.raises(ValueError, match=r"^the stored config") as refusal:
            check_trust(hostile, [])
        assert "\n" not in str(refusal.value) and json.dumps(hostile) == before, what
        trapped.check()


def test_every_hostile_config_is_refused_in_one_sentence(trapped: Trapped) -> None:
    """A fifth of them, each opened by one of the verbs in turn, and by `resume`."""
    for number, (what, hostile) in enumerate(list(hostile_configs(trapped.checkpoint["seqlab"]["config"]))[::5]):
        trapped.store(hostile)
        for command in (VERBS[number % len(VERBS)]("hostile.ckpt"), ["resume", "first"]):
            lines = trapped.seqlab(*command, code=2).stderr.strip().splitlines()
            assert len(lines) == 1 and "the stored config " in lines[0], (what, command, lines)
            trapped.check()


def test_weights_alone_are_taken_without_reading_what_the_config_names(trapped: Trapped) -> None:
    given = [*FIT[1:], "--model.model.num_layers=1"]
    once = [*given, "--data.batch_size=4", "--trainer.max_steps=1", "--trainer.logger=false"]
    (trapped.folder / "labelled.txt").write_text("".join(f"{number % 2} the fox {number}\n" for number in range(40)))
    classify = ["fit", "--config", "classify/transformer", "--data.train=labelled.txt", "--trainer.logger=false"]
    for what, hostile in list(hostile_configs(trapped.checkpoint["seqlab"]["config"]))[::20]:
        trapped.store(hostile)
        for command in (
            *([verb, *given, "--ckpt_path=hostile.ckpt"] for verb in ("validate", "test", "predict")),
            ["fit", *once, "--init_from=hostile.ckpt", "--trainer.limit_val_batches=0"],
        ):
            trapped.seqlab(*command)
            assert "evil" not in sys.modules, (what, command)
            trapped.check()
        refused = trapped.seqlab(*classify, "--encoder_from=hostile.ckpt", code=2).stderr
        assert "--encoder_from hostile.ckpt: the run's model has no encoder" in refused
        trapped.check()


HOSTILE_YAML = {
    "doubled": "model:\n  class_path: x\n  a: &a [x, x]\n"
    + "".join(f"  {b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefghijkl")),
    "its own part": "model: &a\n  class_path: *a\n",
    "its own list": "model: {class_path: x}\ndata: &a [*a, *a]\n",
    "deep": "model: " + "[" * 5000,
    "tag": "model: !!python/object/apply:os.system ['touch canary']\n",
    "date": "model: {class_path: 2001-01-01}\n",
    "bytes": "model: {class_path: !!binary aaaa}\n",
    "set": "model: !!set {a, b}\n",
    "number": f"model: {{class_path: x}}\ntrainer: {{devices: {'9' * 5000}}}\n",
    "keys": "model: {class_path: x, [1]: 2, 3: 4}\n",
    "documents": "model: {class_path: x}\n---\nmodel: {class_path: y}\n",
    "nothing": "",
}


def test_a_stored_file_that_is_no_config_is_refused(trapped: Trapped) -> None:
    for what, text in HOSTILE_YAML.items():
        (trapped.artifacts / "config.yaml").write_text(text, encoding="utf-8")
        lines = trapped.seqlab("resume", "first", code=2).stderr.strip().splitlines()
        assert len(lines) == 1 and "config" in lines[0] and len(lines[0]) < 1000, (what, lines)
        trapped.check()


def test_what_lightning_looks_for_is_not_found_in_the_working_folder(
    trapped: Trapped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    add_working_folder()
    (trapped.folder / "deepspeed.py").write_bytes((trapped.folder / "evil.py").read_bytes())
    trapped.store(with_value(trapped.checkpoint["seqlab"]["config"], "trainer.strategy", "deepspeed"))
    trapped.seqlab("resume", "first", "--trainer.max_steps=6", code=2)
    trapped.check()
    assert "deepspeed" not in sys.modules and WorkingFolder in sys.meta_path


def test_trust_lets_in_that_module_and_nothing_else(trapped: Trapped) -> None:
    config = trapped.checkpoint["seqlab"]["config"]
    mixer = f"{MODEL}.init_args.mixer"
    for path in ("evil.os.system", "evil.run", "evil.Path", "evil_package.inner.Evil", "os.system"):
        trapped.store(with_value(config, mixer, {"class_path": path, "init_args": {"command": f"touch {CANARY}"}}))
        trapped.seqlab("generate", "hostile.ckpt", "--trust=evil", code=2)
        # What is trusted is imported, which its trap tells of; but nothing of it is run.
        assert "evil_package" not in sys.modules
    for path in ("evil.os.system", "evil_package.inner.run", "evil.Path.touch", "os.system"):
        callback = {"class_path": "LambdaCallback", "init_args": {"on_test_start": path}}
        trapped.store(with_value(config, "trainer.callbacks", [callback]))
        assert "the stored config " in trapped.seqlab("test", "hostile.ckpt", "--trust=evil", code=2).stderr
        assert "evil_package" not in sys.modules
    with_evil = with_value(config, mixer, {"class_path": "evil.Evil"})
    trapped.store(with_value(with_evil, f"{MODEL}.init_args.positions", {"class_path": "evil_package.inner.Evil"}))
    refused = trapped.seqlab("generate", "hostile.ckpt", "--trust=evil", code=2).stderr
    assert "evil_package.inner.Evil" in refused and "--trust evil_package.inner" in refused
    trapped.store(with_value(config, "trainer.callbacks", [{"class_path": "mine.Mine"}]))
    assert "--trust mine lets" in trapped.seqlab("test", "hostile.ckpt", code=2).stderr and "mine" not in sys.modules
    trapped.seqlab("test", "hostile.ckpt", "--trust=mine")
    assert (trapped.folder / "called").exists()
    assert "not a module's name" in trapped.seqlab("generate", "hostile.ckpt", "--trust=evil.py -x", code=2).stderr


TEXTS = (
    *("class_path.txt", "class_path", "a class_path fit", "torch.nn.Linear.weight", "seqlab.attention.txt"),
    "os.system",
)
NAMES = ("my class_path: fit", "a: class_path", "[class_path, init_args]")
"""Texts that a path option would take for several values."""
CLASSES = (
    "{class_path: os.system}",
    "class_path: os.system",
    '[{"class_path": "os.system"}]',
    '["{class_path: os.system}"]',
    "model:\n- class_path: os.system\n",
)


def test_a_text_that_looks_like_a_class_is_none(fitted: Path) -> None:
    checkpoint = next(fitted.glob("mlruns/tiny/*/artifacts/checkpoints/last.ckpt"))
    config = read_checkpoint(checkpoint, weights=False)["seqlab"]["config"]
    for place, texts in {"data.init_args.path": TEXTS, "run_name": TEXTS + NAMES, "experiment": TEXTS + NAMES}.items():
        for text in texts:
            check_trust(with_value(config, place, text), [])
        for text in CLASSES:
            with pytest.raises(ValueError, match="a text may hold no class"):
                check_trust(with_value(config, place, text), [])
    for path in ("torch.nn.Module.load_state_dict", "torch.nn.Embedding.from_pretrained"):
        function = {"class_path": "lightning.pytorch.callbacks.LambdaCallback", "init_args": {"on_test_start": path}}
        with pytest.raises(ValueError, match=f"has the text '{path}'|cannot be read"):
            check_trust(with_value(config, "trainer.callbacks", [function]), [])


def test_a_run_of_such_names_is_fitted_loaded_resumed_and_exported(quick: Seqlab, tmp_path: Path) -> None:
    """A corpus may be named as the key of a class, too."""
    (tmp_path / "class_path.txt").write_text((tmp_path / "text.txt").read_text())
    path, mixture = '{"class_path": "./class_path.txt", "new": "text.txt"}', '{"class_path": 0.25, "new": 0.75}'
    corpora = [f"--data.path={path}", f"--data.mixture={mixture}"]
    named = ["--run_name=class_path fit", "--experiment=torch.nn.Linear.weight"]
    for data, names in ((corpora, ["--run_name=mixed"]), (["--data.path=class_path.txt"], named)):
        quick("fit", "--config=lm/gru", *TINY, *data, *names)
        run = names[0].partition("=")[2]
        assert quick("generate", run, "--max-new-tokens=2").stdout
        quick("validate", run)
    quick("resume", run, "--trainer.max_steps=6")
    quick("export", run, "--out=bundle")
