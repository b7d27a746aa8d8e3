"""Names as long as MLflow takes them, longer than a file's may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab, write_text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_and_an_experiment_of_500_characters_are_stored_and_found(
    tmp_path: Path, inside: Callable[[Path], Seqlab]
) -> None:
    write_text(tmp_path)
    seqlab = inside(tmp_path)
    run, experiment = "r" * 500, "e" * 500
    seqlab("fit", "--config=lm/gru", *TINY, f"--experiment={experiment}", f"--run_name={run}")
    assert (
        seqlab("compare", "-q").stdout.split() == seqlab("compare", "-q", f"--experiment={experiment}").stdout.split()
    )
    assert seqlab("generate", run, "--prompt=the", "--max-new-tokens=2").stdout
    assert run in seqlab("resume", run, "--trainer.max_steps=5").stdout
