"""`seqlab compare A B --paired`, from fits with several seeds to the sentence, and runs tested on other data."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab
from seqlab.tracking.runs import find_run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Lightning's advice for longer fits


def test_models_of_two_seeds_are_compared_window_by_window(quick: Seqlab, tmp_path: Path) -> None:
    def compare(*args: str, code: int = 0) -> tuple[str, str]:
        done = quick("compare", *args, code=code)
        return done.stdout, done.stderr

    for name, steps in (("short", 4), ("long", 24)):
        for seed in range(2):
            more = [f"--trainer.max_steps={steps}", f"--seed_everything={seed}", f"--run_name={name}-s{seed}"]
            quick("fit", "--config", "lm/window", *TINY, *more)
    said, told = compare("long", "short", "--paired")
    assert told.count("has no predictions of its test split; they are made") == 4
    assert re.search(r"^long - short +(-\d+\.\d+) ± (\d+\.\d+) +(\S+) +2 seeds +\d+$", said, flags=re.MULTILINE)
    assert compare("long", "short", "--paired") == (said, "")
    (last,) = [line for line in said.splitlines() if line.startswith("long ")][1:]
    assert re.fullmatch(r"long is better than short by .* nats \(2 seeds\)|long and short: not told apart; .*", last)

    ones = ("long-s0", "short-s0")
    single, _ = compare(*ones, "--paired")
    assert "(1 seed)" in single and "another seed would move it is not known" in single
    for name in ones:
        quick("test", name)
    losses = [find_run(name).metrics["test/loss"] for name in ones]
    (found,) = re.findall(r"^long-s0 - short-s0 +(-\d+\.\d+) ±", single, flags=re.MULTILINE)
    assert float(found) == pytest.approx(losses[0] - losses[1], abs=0.002)
    tested = " ".join(compare(*ones, "--metric", "test/loss")[0].split())
    assert "Of one seed, with the interval of other test examples: long-s0, short-s0." in tested
    assert "Evaluated on" not in tested
    quick("test", "short-s0", "--data.seq_len=8")
    shorter = " ".join(compare(*ones, "--metric", "test/loss")[0].split())
    assert f"than its own: short-s0 on {find_run('short-s0').tags['dataset']}, data.seq_len 8." in shorter
    table = quick("compare", "--experiment", "tiny", COLUMNS="120").stdout
    assert re.search(r"^1 long +\d\.\d{4} +\d\.\d{4} +\d\.\d{4} +2 ", table, flags=re.MULTILINE)
    assert "name two rows or runs" in compare("long", "--paired", code=2)[1]
    same = "long-s0 and long-s0 have the same seed"
    assert same in compare("long-s0,long-s0", "short", "--paired", code=2)[1]
    mixed, _ = compare("long-s0,short-s1", "short", "--paired")
    said_of_it = "long-s0,short-s1: short-s1 differs from long-s0 in more than its seed: trainer.max_steps\n"
    assert mixed.startswith(said_of_it)
    assert not list(tmp_path.glob("mlruns/**/*.jsonl")), "a store may be another's"
    for stored in tmp_path.glob("cache/predictions/*/*.jsonl"):
        stored.write_text("{not json\n")
    assert "is not" in compare("long", "short", "--paired", code=2)[1]
    shutil.rmtree(tmp_path / "cache" / "predictions")
    assert "long-s0 has no predictions" in compare("long", "short", "--paired")[1]
    shutil.rmtree(tmp_path / "cache" / "predictions")
    lines = Path("text.txt").read_text().splitlines(keepends=True)
    Path("text.txt").write_text("".join(reversed(lines)))  # of the same length, in the same characters
    changed = r"the data of long-s\d have changed since .* they were text (\w{12}), and are text (?!\1)"
    assert re.search(changed, compare("long", "short", "--paired", code=2)[1])


def test_numbers_are_compared_by_their_squared_errors(quick: Seqlab) -> None:
    data = ["--data.train_lengths=[8,8]", "--data.test_lengths=[8,8]", "--data.num_train=64", "--data.num_eval=32"]
    for name, steps in (("short", 1), ("long", 6)):
        more = [*data, "--model.model.encoder.d_model=4", f"--trainer.max_steps={steps}", f"--run_name={name}"]
        quick("fit", "--config", "synthetic/adding", *more, "--trainer.val_check_interval=1", "--model.lr=0.03")
        quick("test", name)
    done = quick("compare", "long", "short", "--paired").stdout
    (found,) = re.findall(r"^long - short +(-\d+\.\d+) ± .* 1 seed +32$", done, flags=re.MULTILINE)
    losses = [find_run(name).metrics["test/loss"] for name in ("long", "short")]
    assert float(found) == pytest.approx(losses[0] - losses[1], abs=0.01)
