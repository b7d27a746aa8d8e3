"""Verbs as functions, for scripts and notebooks: what the command does, with values for options and a result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.tracking.runs import TrackedRun
    from seqlab_export.runner.report import Report


def fit(config: str | Path, **options: Any) -> TrackedRun:
    """Trains a model, as `seqlab fit --config CONFIG` does, and returns its tracked run.

    Args:
        config: name of a packaged config, or path of a YAML file.
        options: options of the command by name. Those with a dot are nested: `trainer={"max_steps": 100}`.

    Raises:
        ValueError: an option is unknown or has an invalid value, or the data cannot be read.
        RuntimeError: the fit failed or was stopped, and the message has the exit code of the command; or it was tracked
            by no run, as with `fast_dev_run`.
    """
    from seqlab.cli.fit import ran
    from seqlab.config.configs import resolve_names
    from seqlab.tracking.logger import RunLogger
    from seqlab.tracking.runs import find_run

    args = resolve_names([f"--config={config}", *(f"--{name}={value}" for name, value in _given(options))])
    if "--trainer.logger=false" in args:
        raise ValueError("trainer.logger is False, but a fit without a logger has no run to return")
    ids: list[str | None] = []

    def run() -> None:
        from seqlab.cli.lightning_cli import SeqlabCLI

        loggers = SeqlabCLI("fit", args).trainer.loggers
        ids.extend(logger.run_id for logger in loggers if isinstance(logger, RunLogger))

    with _one_sentence():
        code = ran("fit", run)
    if code:
        raise RuntimeError(f"the fit ended with exit code {code}")
    if not ids:
        raise RuntimeError("the fit is done, but it had no logger, and so has no run to return")
    if ids[0] is None:  # a further process of the fit, which has run the script up to here: the first one goes on alone
        raise SystemExit(0)
    return find_run(ids[0])


def sweep(
    config: str | Path, vary: Mapping[str, Any], *, fit: Mapping[str, Any] | None = None, **options: Any
) -> TrackedRun:
    """Fits a config many times, as `seqlab sweep --config CONFIG` does, and returns the sweep's run.

    `compare([run.id])` has its fits.

    Args:
        config: as in `fit`.
        vary: values of each varied option: a list, or a range as in `"1e-4..1e-2:log"`.
        fit: options of every fit, as in `fit`.
        options: options of the sweep by the keys of `seqlab.sweeps.plan.TYPES`, as in a sweep file.

    Raises:
        ValueError: an option is unknown or has an invalid value.
        RuntimeError: every trial failed.
    """
    from seqlab.cli.sweep import carry_out
    from seqlab.sweeps.plan import check_types, make_plan
    from seqlab.tracking.job import run_of_job
    from seqlab.tracking.store import Store

    given = {"config": str(config), "vary": dict(vary), **options}
    check_types(given, "sweep")
    with _one_sentence():
        plan = make_plan(given, [f"--{name}={value}" for name, value in _given(fit or {})])
        code = carry_out(plan, given)
    if code:
        raise RuntimeError(f"the sweep ended with exit code {code}")
    run = run_of_job(plan.name, plan.experiment, "", Store())
    assert run is not None
    return run


def export(run: str | TrackedRun, out: str | Path, *, precision: str = "fp32", target: str = "portable") -> Path:
    """Exports a run as a bundle that is proven equal to it, and returns the bundle's folder.

    Args:
        run: run, or its id, name or checkpoint.
        out: folder, which must not exist.
        precision: fp32, fp16, bf16, int8 or int4.
        target: portable, ort or cuda-graph.

    Raises:
        ValueError: the run is not found, or an argument is invalid.
        ParityError: the proof failed. Nothing is written.
    """
    from seqlab.cli.bundle import export_run
    from seqlab.files.place_to_write import folder_to_write
    from seqlab.trained.load import load_run

    folder = folder_to_write(str(out))
    export_run(load_run(run if isinstance(run, str) else run.id), precision, folder, target=target)
    return folder


def verify(bundle: str | Path) -> Report:
    """Proves a bundle again on this machine, read-only; see `seqlab_export.verify_bundle`."""
    from seqlab_export import verify_bundle

    return verify_bundle(bundle)


def page(*bundles: str | Path, out: str | Path) -> Path:
    """Writes an HTML file in which a browser runs the bundles, and returns its path.

    Raises:
        ValueError: a bundle is broken or too large for a browser, or the file exists.
    """
    from seqlab.cli.page import write

    return write([str(bundle) for bundle in bundles], str(out))


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Reports bad input as the command does, as a ValueError."""
    from seqlab.config.errors import sentence

    try:
        yield
    except (ValueError, OSError) as error:
        raise ValueError(sentence(error)) from error


def _given(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and texts of options, as on a command line."""
    for name, value in options.items():
        if isinstance(value, Mapping) and "class_path" not in value:
            yield from _given(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value) if isinstance(value, (str, Path)) else json.dumps(value)
