"""A class path outside seqlab, torch and lightning: a plug-in with no registration, imported again only on trust."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab, write_text
from cli.hostile import with_value
from seqlab.checkpoint_io import read_checkpoint
from seqlab.config.trust import check_trust

PLUG_IN = '''
from pathlib import Path
from seqlab.recurrence import GRU

Path("imported").touch()


class Mine(GRU):
    """A user's own mixer."""
'''


@pytest.mark.slow
def test_a_plug_in_needs_no_registration_and_trust_to_load(seqlab: Seqlab, tmp_path: Path) -> None:
    (tmp_path / "my_mixers.py").write_text(PLUG_IN, encoding="utf-8")
    seqlab("fit", "--config", "lm/gru", *TINY, "--model.model.mixer=my_mixers.Mine", "--run_name=mine")
    (tmp_path / "imported").unlink()

    options = ("mine", "--prompt", "a", "--max-new-tokens", "3")
    refused = seqlab("generate", *options, code=2).stderr
    assert "my_mixers.Mine" in refused and "--trust my_mixers" in refused
    assert not (tmp_path / "imported").exists()
    assert seqlab("generate", *options, "--trust", "my_mixers").stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_corpus_may_be_named_as_the_key_of_a_class(inside: Callable[[Path], Seqlab], tmp_path: Path) -> None:
    write_text(tmp_path)
    shutil.copy(tmp_path / "text.txt", tmp_path / "new.txt")
    seqlab = inside(tmp_path)
    path, mixture = '{"class_path": "./text.txt", "new": "new.txt"}', '{"class_path": 0.25, "new": 0.75}'
    corpora = (f"--data.path={path}", f"--data.mixture={mixture}")
    seqlab("fit", "--config=lm/gru", *TINY[1:], *corpora, "--run_name=mixed")
    assert seqlab("generate", "mixed", "--max-new-tokens=2").stdout
    seqlab("validate", "mixed")


LOOKS_LIKE_A_CLASS = (
    "class_path.txt",
    "class_path",
    "a class_path fit",
    "torch.nn.Linear.weight",
    "seqlab.attention.txt",
    "os.system",
)
LOOKS_LIKE_MORE = ("my class_path: fit", "a: class_path", "[class_path, init_args]")
"""Texts that a path option would take for several values."""
IS_A_CLASS = (
    "{class_path: os.system}",
    "class_path: os.system",
    '[{"class_path": "os.system"}]',
    '["{class_path: os.system}"]',
    "model:\n- class_path: os.system\n",
)
TEXTS = ("data.init_args.path", "run_name", "experiment")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_text_is_a_class_only_where_it_would_be_read_as_one(fitted: tuple[Path, Seqlab]) -> None:
    home, _ = fitted
    checkpoint = next(home.glob("mlruns/tiny/*/artifacts/checkpoints/last.ckpt"))
    config = read_checkpoint(checkpoint, weights=False)["seqlab"]["config"]
    for place in TEXTS:
        for text in LOOKS_LIKE_A_CLASS + (LOOKS_LIKE_MORE if place in ("run_name", "experiment") else ()):
            check_trust(with_value(config, place, text), [])
        for text in IS_A_CLASS:
            with pytest.raises(ValueError, match="a text may hold no class"):
                check_trust(with_value(config, place, text), [])
    function = {"class_path": "lightning.pytorch.callbacks.LambdaCallback", "init_args": {}}
    for path in ("torch.nn.Module.load_state_dict", "torch.nn.Embedding.from_pretrained"):
        function["init_args"] = {"on_test_start": path}
        with pytest.raises(ValueError, match=f"has the text '{path}'|cannot be read"):
            check_trust(with_value(config, "trainer.callbacks", [function]), [])


@pytest.mark.slow
def test_a_run_of_such_names_is_fitted_loaded_resumed_and_exported(
    inside: Callable[[Path], Seqlab], tmp_path: Path
) -> None:
    write_text(tmp_path)
    (tmp_path / "text.txt").rename(tmp_path / "class_path.txt")
    seqlab = inside(tmp_path)
    named = ["--data.path=class_path.txt", "--run_name=class_path fit", "--experiment=torch.nn.Linear.weight"]
    seqlab("fit", "--config=lm/gru", *TINY, *named)
    assert seqlab("generate", "class_path fit", "--max-new-tokens=2").stdout
    seqlab("validate", "class_path fit")
    seqlab("resume", "class_path fit", "--trainer.max_steps=6")
    seqlab("export", "class_path fit", "--out=bundle")
