"""A class path outside seqlab, torch and lightning: a plug-in with no registration, imported again only on trust."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab

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
