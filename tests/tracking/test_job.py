"""The run of a job: by its name, or by who started it, and not while another process trains it."""

from __future__ import annotations

from threading import Timer

import pytest
from filelock import FileLock

from seqlab.tracking.job import JOB_TAG, job_of, run_of_job
from seqlab.tracking.journal import Journal
from seqlab.tracking.provenance import process_tags
from seqlab.tracking.store import Store
from tracking.tiny import make_run

GONE = process_tags() | {"process.start": "0.0"}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)


def test_a_job_is_named_or_has_an_id(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    assert job_of(None) is None and job_of("") is None and job_of("books") == "books"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with pytest.raises(ValueError, match="give a --run_name"):
        run_of_job(None, "tests", "hash", store)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert job_of(None) == "slurm 12"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a b")
    assert job_of(None) == "torchrun a b" and job_of("books") == "books"


def found(name: str | None, config: str, store: Store) -> str | None:
    """The id of the run of a job."""
    run = run_of_job(name, "tests", config, store)
    return None if run is None else run.id


def test_a_named_job_is_one_run_whatever_its_config(store: Store) -> None:
    assert found("it's", "now", store) is None
    first = make_run(store, "it's", status="FAILED", tags={JOB_TAG: "it's", "config_hash": "then"})
    make_run(store, "it's", experiment="another", tags={JOB_TAG: "it's"})
    assert found("it's", "now", store) == first
    make_run(store, "it's", tags={JOB_TAG: "it's"})
    with pytest.raises(ValueError, match=r"more than one run: .* give another --run_name"):
        run_of_job("it's", "tests", "now", store)
    with pytest.raises(ValueError, match="both kinds of quotation marks"):
        run_of_job("'\"", "tests", "now", store)


def test_a_job_with_an_id_may_be_several_fits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    runs = {hash: make_run(store, hash, tags={JOB_TAG: "slurm 12", "config_hash": hash}) for hash in ("one", "two")}
    assert {hash: found(None, hash, store) for hash in (*runs, "three")} == runs | {"three": None}
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    assert found(None, "one", store) is None


def test_a_run_that_is_trained_is_left_alone_and_one_whose_process_is_gone_is_not(store: Store) -> None:
    make_run(store, "alive", status="RUNNING", tags={JOB_TAG: "alive", **process_tags()})
    with pytest.raises(ValueError, match=r"alive \(\w{8}\) is being trained by process \d+ on this machine"):
        run_of_job("alive", "tests", "hash", store)
    for name, tags in {"gone": GONE, "elsewhere": process_tags() | {"host.id": "another"}}.items():
        run = make_run(store, name, status="RUNNING", tags={JOB_TAG: name, **tags})
        assert found(name, "hash", store) == run


def test_a_life_that_ended_before_its_run_was_created_is_found_by_all_ranks() -> None:
    store = Store()
    begun = Journal(store)
    begun.create("tests", "early", {JOB_TAG: "early", **GONE}, later=True)
    assert not store.exists
    lock = FileLock(begun.pending.with_suffix(".lock"), thread_local=False)  # another rank sends it
    lock.acquire()
    Timer(0.2, lock.release).start()
    assert found("early", "hash", store) == begun.run_id
