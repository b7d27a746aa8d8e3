"""`seqlab compare A B --paired`, from fits with several seeds to the sentence."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab, write_text
from seqlab.tracking.runs import find_run


@pytest.mark.slow
def test_models_of_two_seeds_are_compared_window_by_window(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    write_text(tmp_path)
    seqlab = inside(tmp_path)
    for name, steps in (("short", 4), ("long", 24)):
        for seed in range(2):
            more = [f"--trainer.max_steps={steps}", f"--seed_everything={seed}", f"--run_name={name}-s{seed}"]
            seqlab("fit", "--config", "lm/window", *TINY, *more)
    done = seqlab("compare", "long", "short", "--paired")
    assert done.stderr.count("has no predictions of its test split; they are made") == 4
    assert re.search(r"^long - short +(-\d+\.\d+) ± (\d+\.\d+) +(\S+) +2 seeds +\d+$", done.stdout, flags=re.MULTILINE)
    again = seqlab("compare", "long", "short", "--paired")
    assert again.stdout == done.stdout and again.stderr == ""
    (last,) = [line for line in done.stdout.splitlines() if line.startswith("long ")][1:]
    assert re.fullmatch(r"long is better than short by .* nats \(2 seeds\)|long and short: not told apart; .*", last)

    single = seqlab("compare", "long-s0", "short-s0", "--paired").stdout
    assert "(1 seed)" in single and "another seed would move it is not known" in single
    for name in ("long-s0", "short-s0"):
        seqlab("test", name)
    losses = [find_run(name).metrics["test/loss"] for name in ("long-s0", "short-s0")]
    (found,) = re.findall(r"^long-s0 - short-s0 +(-\d+\.\d+) ±", single, flags=re.MULTILINE)
    assert float(found) == pytest.approx(losses[0] - losses[1], abs=0.002)
    tested = " ".join(seqlab("compare", "long-s0", "short-s0", "--metric", "test/loss").stdout.split())
    assert "Of one seed, with the interval of other test examples: long-s0, short-s0." in tested
    assert "Evaluated on" not in tested
    seqlab("test", "short-s0", "--data.seq_len=8")
    shorter = " ".join(seqlab("compare", "long-s0", "short-s0", "--metric", "test/loss").stdout.split())
    assert f"than its own: short-s0 on {find_run('short-s0').tags['dataset']}, data.seq_len 8." in shorter
    table = seqlab("compare", "--experiment", "tiny", COLUMNS="120").stdout
    assert re.search(r"^1 long +\d\.\d{4} +\d\.\d{4} +\d\.\d{4} +2 ", table, flags=re.MULTILINE)
    assert "name two rows or runs" in seqlab("compare", "long", "--paired", code=2).stderr
    assert (
        "long-s0 and long-s0 have the same seed"
        in seqlab("compare", "long-s0,long-s0", "short", "--paired", code=2).stderr
    )
    mixed = seqlab("compare", "long-s0,short-s1", "short", "--paired").stdout
    assert mixed.startswith(
        "long-s0,short-s1: short-s1 differs from long-s0 in more than its seed: trainer.max_steps\n"
    )
    assert not list(tmp_path.glob("mlruns/**/*.jsonl")), "a store may be another's"
    for stored in tmp_path.glob("cache/predictions/*/*.jsonl"):
        stored.write_text("{not json\n")
    assert "is not" in seqlab("compare", "long", "short", "--paired", code=2).stderr
    shutil.rmtree(tmp_path / "cache" / "predictions")
    assert "long-s0 has no predictions" in seqlab("compare", "long", "short", "--paired").stderr
    shutil.rmtree(tmp_path / "cache" / "predictions")
    lines = Path("text.txt").read_text().splitlines(keepends=True)
    Path("text.txt").write_text("".join(reversed(lines)))  # of the same length, in the same characters
    refused = seqlab("compare", "long", "short", "--paired", code=2).stderr
    assert re.search(
        r"the data of long-s\d have changed since .* they were text (\w{12}), and are text (?!\1)", refused
    )


@pytest.mark.slow
def test_numbers_are_compared_by_their_squared_errors(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    seqlab = inside(tmp_path)
    data = ["--data.train_lengths=[8,8]", "--data.test_lengths=[8,8]", "--data.num_train=64", "--data.num_eval=32"]
    for name, steps in (("short", 1), ("long", 6)):
        more = [*data, "--model.model.encoder.d_model=4", f"--trainer.max_steps={steps}", f"--run_name={name}"]
        seqlab("fit", "--config", "synthetic/adding", *more, "--trainer.val_check_interval=1", "--model.lr=0.03")
        seqlab("test", name)
    done = seqlab("compare", "long", "short", "--paired").stdout
    (found,) = re.findall(r"^long - short +(-\d+\.\d+) ± .* 1 seed +32$", done, flags=re.MULTILINE)
    losses = [find_run(name).metrics["test/loss"] for name in ("long", "short")]
    assert float(found) == pytest.approx(losses[0] - losses[1], abs=0.01)
