"""A text of a stored config is a class only where it would be read as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab
from cli.hostile import with_value
from seqlab.checkpoint_io import read_checkpoint
from seqlab.config.trust import check_trust

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
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


def test_a_text_that_looks_like_a_class_is_none(fitted: tuple[Path, Seqlab]) -> None:
    checkpoint = next(fitted[0].glob("mlruns/tiny/*/artifacts/checkpoints/last.ckpt"))
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
