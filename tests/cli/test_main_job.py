"""The main job on a tiny text: every verb, as it is typed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cli.conftest import TINY, Seqlab, write_text
from seqlab.tracking.runs import find_run

Fitted = tuple[Path, Seqlab]
Inside = Callable[[Path], Seqlab]


def test_compare_reads_the_run_back_from_the_store(fitted: Fitted, inside: Inside) -> None:
    folder, seqlab = fitted
    table = seqlab("compare", "--experiment", "tiny", COLUMNS="160").stdout
    assert "first" in table and "FINISHED" not in table
    (run_id,) = inside(folder)("compare", "--experiment", "tiny", "--quiet").stdout.split()
    assert re.fullmatch("[0-9a-f]{32}", run_id)


def test_a_reader_that_stops_early_is_no_error(fitted: Fitted) -> None:
    folder, _ = fitted
    seqlab = Path(sys.executable).with_name("seqlab")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([seqlab, "compare", "--quiet"], cwd=folder, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_compare_adds_days_and_cost(fitted: Fitted, inside: Inside) -> None:
    folder, _ = fitted
    done = inside(folder)("compare", "--tokens", "1e9", "--price", "2.5", "--out", "report.html", COLUMNS="160")
    assert "days" in done.stdout and "cost" in done.stdout
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "first" in page and "<svg" in page and "http-equiv" not in page


def test_export_verify_and_generate_agree(fitted: Fitted, inside: Inside) -> None:
    folder, seqlab = fitted
    quick = inside(folder)
    done = quick("export", "first", "--out", "bundle")
    assert "prefill" in done.stdout and "ok" in done.stdout
    assert done.stdout.splitlines()[-1] == 'Bundle bundle · next: seqlab generate bundle --prompt "..."'
    promoted = quick("promote", "bundle").stdout
    [version] = re.findall(r"^Champion of tiny: (version \d+ \(first, fp32, portable\)); before: ", promoted)
    again = f"Champion of tiny: {version}; before: {version} · next: MLFLOW_TRACKING_URI=sqlite:///"
    assert all(quick("promote", target).stdout.startswith(again) for target in ("bundle", "first"))
    assert "prefill" in quick("verify", "bundle").stdout
    report = json.loads(quick("verify", "bundle", "--json").stdout)
    assert report["ok"] is True

    options = ("--prompt", "the ", "--max-new-tokens", "20", "--seed", "7")
    from_run, from_bundle = quick("generate", "first", *options), seqlab("generate", "bundle", *options)
    assert from_run.stdout == from_bundle.stdout and len(from_run.stdout) > 1
    assert quick("generate", "bundle", *options[:-1], "8").stdout != from_bundle.stdout
    greedy = ("--temperature", "0", "--prompt", "the ", "--max-new-tokens", "20")
    assert quick("generate", "first", *greedy).stdout == quick("generate", "bundle", *greedy).stdout

    weights = folder / "bundle" / "weights.bin"
    spoiled = bytearray(weights.read_bytes())
    spoiled[100] ^= 1
    weights.write_bytes(spoiled)
    assert "weights.bin" in quick("verify", "bundle", code=1).stdout


def test_a_run_is_named_by_id_prefix_name_or_checkpoint(fitted: Fitted, inside: Inside) -> None:
    folder, _ = fitted
    quick = inside(folder)
    run_id = quick("compare", "--experiment", "tiny", "--quiet").stdout.split()[0]
    (checkpoint,) = folder.glob(f"mlruns/*/{run_id}/artifacts/checkpoints/best.ckpt")
    options = ("--prompt", "a", "--max-new-tokens", "5")
    texts = {quick("generate", run, *options).stdout for run in (run_id, run_id[:8], "first", str(checkpoint))}
    assert len(texts) == 1
    assert "no run" in quick("generate", "nobody", code=2).stderr


def test_a_run_is_evaluated_as_it_was_configured_and_keeps_the_scores(fitted: Fitted, inside: Inside) -> None:
    folder, _ = fitted
    quick = inside(folder)
    (run_id,) = quick("compare", "--experiment", "tiny", "--quiet").stdout.split()
    (checkpoint,) = folder.glob(f"mlruns/*/{run_id}/artifacts/checkpoints/best.ckpt")
    text = (folder / "text.txt").read_text(encoding="utf-8")
    # Fewer characters, and one that the run has never seen.
    (folder / "other.txt").write_text(text[: len(text) // 2].replace("a", "").replace("e", "\u00e9"), encoding="utf-8")
    before, evaluated = find_run(run_id).history("val/loss"), len(find_run(run_id).history("validate/loss"))
    assert "test/loss" in quick("test", "first", "--data.batch_size=2").stdout
    quick("test", str(checkpoint), "--data.seq_len=8")
    quick("validate", "first", "--data.path=other.txt")
    run = find_run(run_id)
    (whole_step, whole), (part_step, part) = run.history("test/loss")[-2:]
    assert whole_step == part_step == 4 and whole != part
    assert len(run.history("validate/loss")) == evaluated + 1 and run.history("val/loss") == before
    assert run.status == "FINISHED"

    quick("predict", "first", "--out=said.jsonl")
    assert len((folder / "said.jsonl").read_text(encoding="utf-8").splitlines()) > 1
    assert "batch_sise" in quick("test", "first", "--data.batch_sise=2", code=2).stderr
    assert "no run" in quick("test", "nobody", code=2).stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_a_fit_that_was_refused_does_not_stand_in_the_way_of_its_name(tmp_path: Path, inside: Inside) -> None:
    write_text(tmp_path)
    seqlab = inside(tmp_path)
    fit = ("fit", "--config", "lm/gru", *TINY, "--run_name=same")
    every_epoch = ("--trainer.check_val_every_n_epoch=1", "--trainer.val_check_interval=1000")
    assert "val_check_interval" in seqlab(*fit, *every_epoch, code=2).stderr
    refused, *more = seqlab("compare", "--metric=num_params", "--quiet").stdout.split()
    assert not more and f"run same ({refused}) has no checkpoint" in seqlab("export", "same", "--out=a", code=2).stderr
    seqlab(*fit)
    assert "Bundle a · next:" in seqlab("export", "same", "--out=a").stdout
    seqlab(*fit)
    assert "'same' names more than one run" in seqlab("export", "same", "--out=b", code=2).stderr


def test_resume_continues_the_same_run(tmp_path: Path, inside: Inside) -> None:
    write_text(tmp_path)
    seqlab = inside(tmp_path)
    short = [*TINY, "--data.batch_size=64"]  # an epoch of few batches
    seqlab("fit", "--config", "lm/gru", *short, "--run_name=short")
    run_id = seqlab("compare", "--quiet").stdout.split()
    seqlab("resume", "short", "--trainer.max_steps=6")
    assert seqlab("compare", "--quiet").stdout.split() == run_id


def test_print_config_round_trips(tmp_path: Path, inside: Inside) -> None:
    seqlab = inside(tmp_path)
    first = seqlab("fit", "--config", "lm/gru", *TINY, "--print_config").stdout
    (tmp_path / "printed.yaml").write_text(first, encoding="utf-8")
    assert seqlab("fit", "--config", "printed.yaml", "--print_config").stdout == first
    assert yaml.safe_load(first)["model"]["init_args"]["model"]["init_args"]["d_model"] == 16


@pytest.mark.parametrize("verb", ["validate", "test"])
def test_evaluation_of_a_run(verb: str, fitted: Fitted, inside: Inside) -> None:
    done = inside(fitted[0])(verb, "--config", "lm/attention-rope", *TINY[:5], "--ckpt_path", "first")
    assert "bits_per_char" in done.stdout


def test_predict_writes_a_file_of_the_surprise_of_each_target(fitted: Fitted, inside: Inside) -> None:
    folder, _ = fitted
    options = ["--config", "lm/attention-rope", *TINY[:5], "--ckpt_path", "first"]
    inside(folder)("predict", *options, "--out", "surprise.jsonl")
    rows = [json.loads(line) for line in (folder / "surprise.jsonl").read_text().splitlines()]
    assert [row["row"] for row in rows] == list(range(len(rows)))
    nats = [nat for row in rows for nat in row["nats"]]
    assert {len(row["nats"]) for row in rows[:-1]} == {16}
    tested = inside(folder)("test", *options).stdout
    (loss,) = [line.split("│")[2].strip() for line in tested.splitlines() if "test/loss " in line]
    assert float(loss) == pytest.approx(sum(nats) / len(nats), rel=1e-5)
    refused = inside(folder)("predict", *options, "--out", "nowhere/surprise.jsonl", code=2).stderr
    assert "there is no folder nowhere" in refused


def test_configs_are_listed_and_printed(tmp_path: Path, inside: Inside) -> None:
    seqlab = inside(tmp_path)
    listed = seqlab("configs").stdout
    for name in ("lm/gru", "lm/attention-nope", "lm/attention-rope", "presets/gpt2-xl"):
        assert name in listed
    shown = seqlab("configs", "lm/gru").stdout
    assert shown.startswith("# seqlab fit --config lm/gru") and len(shown.splitlines()) <= 40
