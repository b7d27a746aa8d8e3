"""The main job on a tiny text, verb by verb."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cli.conftest import TINY, Seqlab
from seqlab.tracking.runs import find_run


def test_compare_reads_the_run_back_from_the_store(beside_first: Seqlab) -> None:
    seqlab = beside_first
    (run_id,) = seqlab("compare", "--experiment", "tiny", "--quiet").stdout.split()
    assert re.fullmatch("[0-9a-f]{32}", run_id)
    table = seqlab("compare", "--tokens", "1e9", "--price", "2.5", "--out", "report.html", COLUMNS="160").stdout
    assert all(said in table for said in ("first", "days", "cost")) and "FINISHED" not in table
    page = Path("report.html").read_text(encoding="utf-8")
    assert "first" in page and "<svg" in page and "http-equiv" not in page


def test_a_reader_that_stops_early_is_no_error() -> None:
    seqlab = Path(sys.executable).with_name("seqlab")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([seqlab, "configs"], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_export_verify_and_generate_agree(beside_first: Seqlab) -> None:
    seqlab = beside_first
    done = seqlab("export", "first", "--out", "bundle")
    assert "prefill" in done.stdout and "ok" in done.stdout
    assert done.stdout.splitlines()[-1] == 'Bundle bundle · next: seqlab generate bundle --prompt "..."'
    promoted = seqlab("promote", "bundle").stdout
    [version] = re.findall(r"^Champion of tiny: (version \d+ \(first, fp32, portable\)); before: ", promoted)
    again = f"Champion of tiny: {version}; before: {version} · next: MLFLOW_TRACKING_URI=sqlite:///"
    assert all(seqlab("promote", target).stdout.startswith(again) for target in ("bundle", "first"))
    assert "prefill" in seqlab("verify", "bundle").stdout
    assert json.loads(seqlab("verify", "bundle", "--json").stdout)["ok"] is True

    def written(target: str, *options: str) -> str:
        return seqlab("generate", target, "--prompt", "the ", "--max-new-tokens", "20", *options).stdout

    seeded = ("--seed", "7")
    assert len(written("bundle", *seeded)) > 1 and written("bundle", "--seed", "8") != written("bundle", *seeded)
    for options in (seeded, ("--temperature", "0")):
        assert written("first", *options) == written("bundle", *options)

    weights = Path("bundle/weights.bin")
    spoiled = bytearray(weights.read_bytes())
    spoiled[100] ^= 1
    weights.write_bytes(spoiled)
    assert "weights.bin" in seqlab("verify", "bundle", code=1).stdout


def test_a_run_is_named_by_id_prefix_name_or_checkpoint(beside_first: Seqlab) -> None:
    seqlab = beside_first
    run = find_run("first")
    texts = {
        seqlab("generate", name, "--prompt", "a", "--max-new-tokens", "5").stdout
        for name in (run.id, run.id[:8], "first", str(run.best_checkpoint))
    }
    assert len(texts) == 1
    assert "no run" in seqlab("generate", "nobody", code=2).stderr


def test_a_run_is_evaluated_as_it_was_configured_and_keeps_the_scores(beside_first: Seqlab) -> None:
    seqlab = beside_first
    run = find_run("first")
    text = Path("text.txt").read_text(encoding="utf-8")
    # Fewer characters, and one that the run has never seen.
    Path("other.txt").write_text(text[: len(text) // 2].replace("a", "").replace("e", "\u00e9"), encoding="utf-8")
    before, evaluated = run.history("val/loss"), len(run.history("validate/loss"))
    assert "test/loss" in seqlab("test", "first", "--data.batch_size=2").stdout
    seqlab("test", str(run.best_checkpoint), "--data.seq_len=8")
    seqlab("validate", "first", "--data.path=other.txt")
    run = find_run("first")
    (whole_step, whole), (part_step, part) = run.history("test/loss")[-2:]
    assert whole_step == part_step == 4 and whole != part
    assert len(run.history("validate/loss")) == evaluated + 1 and run.history("val/loss") == before
    assert run.status == "FINISHED"
    assert "batch_sise" in seqlab("test", "first", "--data.batch_sise=2", code=2).stderr
    assert "no run" in seqlab("test", "nobody", code=2).stderr


def test_predict_writes_a_file_of_the_surprise_of_each_target(beside_first: Seqlab) -> None:
    seqlab = beside_first
    options = ["--config", "lm/attention-rope", *TINY[:5], "--ckpt_path", "first"]
    seqlab("predict", *options, "--out", "surprise.jsonl")
    rows = [json.loads(line) for line in Path("surprise.jsonl").read_text().splitlines()]
    assert [row["row"] for row in rows] == list(range(len(rows)))
    nats = [nat for row in rows for nat in row["nats"]]
    assert {len(row["nats"]) for row in rows[:-1]} == {16}
    tested = seqlab("test", *options).stdout
    (loss,) = [line.split("│")[2].strip() for line in tested.splitlines() if "test/loss " in line]
    assert float(loss) == pytest.approx(sum(nats) / len(nats), rel=1e-5)
    assert "bits_per_char" in tested and "bits_per_char" in seqlab("validate", *options).stdout
    seqlab("predict", "first", "--out=stored.jsonl")
    assert Path("stored.jsonl").read_text() == Path("surprise.jsonl").read_text()
    refused = seqlab("predict", *options, "--out", "nowhere/surprise.jsonl", code=2).stderr
    assert "there is no folder nowhere" in refused


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_a_fit_that_was_refused_does_not_stand_in_the_way_of_its_name(quick: Seqlab) -> None:
    fit = ("fit", "--config", "lm/gru", *TINY, "--run_name=same")
    every_epoch = ("--trainer.check_val_every_n_epoch=1", "--trainer.val_check_interval=1000")
    assert "val_check_interval" in quick(*fit, *every_epoch, code=2).stderr
    refused, *more = quick("compare", "--metric=num_params", "--quiet").stdout.split()
    assert not more and f"run same ({refused}) has no checkpoint" in quick("export", "same", "--out=a", code=2).stderr
    quick(*fit)
    assert "Bundle a · next:" in quick("export", "same", "--out=a").stdout
    quick(*fit)
    assert "'same' names more than one run" in quick("export", "same", "--out=b", code=2).stderr


def test_resume_continues_the_same_run(quick: Seqlab) -> None:
    short = [*TINY, "--data.batch_size=64"]  # an epoch of few batches
    quick("fit", "--config", "lm/gru", *short, "--run_name=short")
    run_id = quick("compare", "--quiet").stdout.split()
    quick("resume", "short", "--trainer.max_steps=6")
    assert quick("compare", "--quiet").stdout.split() == run_id


def test_print_config_round_trips(tmp_path: Path, quick: Seqlab) -> None:
    first = quick("fit", "--config", "lm/gru", *TINY, "--print_config").stdout
    (tmp_path / "printed.yaml").write_text(first, encoding="utf-8")
    assert quick("fit", "--config", "printed.yaml", "--print_config").stdout == first
    assert yaml.safe_load(first)["model"]["init_args"]["model"]["init_args"]["d_model"] == 16


def test_configs_are_listed_and_printed(quick: Seqlab) -> None:
    listed = quick("configs").stdout
    for name in ("lm/gru", "lm/attention-nope", "lm/attention-rope", "presets/gpt2-xl"):
        assert name in listed
    shown = quick("configs", "lm/gru").stdout
    assert shown.startswith("# seqlab fit --config lm/gru") and len(shown.splitlines()) <= 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Lightning's advice for longer fits
def test_models_of_two_seeds_are_compared_window_by_window(quick: Seqlab, tmp_path: Path) -> None:
    def compare(*args: str, code: int = 0) -> tuple[str, str]:
        done = quick("compare", *args, code=code)
        return done.stdout, done.stderr

    for name, steps in (("short", 4), ("long", 24)):
        for seed in range(2):
            more = [f"--trainer.max_steps={steps}", f"--seed_everything={seed}", f"--run_name={name}-s{seed}"]
            quick("fit", "--config", "lm/window", *TINY, *more)
    said, told = compare("long", "short", "--paired")
    assert told.count("has no predictions of its test split; making them") == 4
    assert re.search(r"^long - short +(-\d+\.\d+) ± (\d+\.\d+) +(\S+) +2 seeds +\d+$", said, flags=re.MULTILINE)
    assert compare("long", "short", "--paired") == (said, "")
    (last,) = [line for line in said.splitlines() if line.startswith("long ")][1:]
    assert re.fullmatch(r"long is better than short by .* nats \(2 seeds\)|long and short: not told apart; .*", last)

    ones = ("long-s0", "short-s0")
    single, _ = compare(*ones, "--paired")
    assert "(1 seed" in single and "the effect of another seed is unknown" in single
    for name in ones:
        quick("test", name)
    losses = [find_run(name).metrics["test/loss"] for name in ones]
    (found,) = re.findall(r"^long-s0 - short-s0 +(-\d+\.\d+) ±", single, flags=re.MULTILINE)
    assert float(found) == pytest.approx(losses[0] - losses[1], abs=0.002)
    tested = " ".join(compare(*ones, "--metric", "test/loss")[0].split())
    assert "From one seed, with the interval over other test examples: long-s0, short-s0." in tested
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
    changed = r"the data of long-s\d have changed since .* they were text (\w{12}), and are now text (?!\1)"
    assert re.search(changed, compare("long", "short", "--paired", code=2)[1])
