"""Execution of a study. The results of all seeds are stored in one run; a stopped study continues at the next seed."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seqlab.study.arms import fit_arms
from seqlab.study.rules import Judgement
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.job import run_of_job
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.provenance import git, provenance
from seqlab.tracking.runs import TrackedRun, find_run, search
from seqlab.tracking.store import Store

STUDY_TAG, SCALE_TAG, FIXED_TAG = "study", "study.scale", "study.fixed"
VERDICT = "verdict."
"""Tags of a study's run: its name, its scale, the commit that fixed its rules, and each verdict."""
LIB = "seqlab_studies.lib."
"""Package of measurement code shared by several studies."""


@dataclass(frozen=True)
class Result:
    """Result of a study.

    Attributes:
        run: MLflow run that stores the results.
        seeds: measurements of each seed.
    """

    study: Study
    run: TrackedRun
    seeds: Sequence[Measured]

    @cached_property
    def judgements(self) -> dict[str, Judgement]:
        return self.study.judge(self.seeds)

    @property
    def points(self) -> Points:
        """Rows of all seeds, with an added column `seed`."""
        return [row | {"seed": seed} for seed, seen in enumerate(self.seeds) for row in seen.points]


def conduct(study: Study, scale: Scale, seeds: int, jobs: int) -> Result:
    """Runs a study with the given number of seeds, or with one if all claims are exact; `jobs` fits run concurrently.

    Raises:
        ValueError: an arm could not be fitted.
    """
    name, store = f"{study.name}-{scale}-{declared(study)}", Store()  # a changed declaration starts a new run
    before = run_of_job(name, study.name, "", store)
    logger = RunLogger(study.name, name=name, run_id=None if before is None else before.id)
    logger.begin()
    assert logger.run_id is not None and logger.artifacts is not None
    kept = _kept(logger.artifacts)
    try:
        if before is None or STUDY_TAG not in before.tags:
            logger.log_tags({**provenance(), STUDY_TAG: study.name, SCALE_TAG: scale, FIXED_TAG: fixed(study)})
        wanted = 1 if all(claim.exact for claim in study.claims) else seeds
        for seed in range(len(kept), wanted):
            runs = fit_arms(study.arms(scale), study.name, seed, jobs, logger.run_id)
            kept.append(study.measure(scale, seed, runs))
            logger.log_text(json.dumps(kept[-1]._asdict()), f"measured/{seed}.json")
        kept = kept[:wanted]
        judged = study.judge(kept)
        logger.log_tags({VERDICT + key: f"{found.verdict}: {found.reason}" for key, found in judged.items()})
    except BaseException:
        logger.status = "KILLED"
        raise
    finally:
        logger.finalize("success")
    return Result(study, find_run(logger.run_id, store), kept)


def latest(study: Study) -> list[Result]:
    """Newest finished run of each scale, if it can still be judged; empty if the study was not run here."""
    store = Store()
    runs = search(store, experiment=study.name) if store.exists else []
    finished = [run for run in runs if run.status == "FINISHED" and run.tags.get(STUDY_TAG) == study.name]
    newest: dict[str, TrackedRun] = {}
    for run in sorted(finished, key=lambda run: run.started):
        newest[run.tags[SCALE_TAG]] = run
    results = (Result(study, run, _kept(run.artifacts)) for run in newest.values())
    return [result for result in results if _can_be_judged(result)]


def _can_be_judged(result: Result) -> bool:
    """True if every currently declared case was measured, so that none was added after the run."""
    judged = [claim for claim in result.study.claims if claim.key not in result.seeds[0].needs]
    names = {case for claim in judged for case in (*claim.cases, *(control.case for control in claim.controls))}
    return all(names <= set(seen.values) for seen in result.seeds)


def declared(study: Study) -> str:
    """Digest of the study's file and of the files of `LIB` that it imports. Comments, docstrings, texts and figures are
    excluded, because they may be written after the verdicts are known."""
    files, told = [study.file()], ""
    for file in files:  # the list grows by the imports of each file
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module):
                node.body = [line for line in node.body if not _is_told_after(line)]
        told += ast.dump(tree)
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        names = [f"{node.module}.{alias.name}" for node in imports for alias in node.names]
        modules = [".".join(name.split(".")[: LIB.count(".") + 1]) for name in names if name.startswith(LIB)]
        found = [spec.origin for name in modules if (spec := find_spec(name)) is not None]
        files += [path for path in map(Path, dict.fromkeys(filter(None, found))) if path not in files]
    return hashlib.sha256(told.encode()).hexdigest()[:8]


def _is_told_after(line: ast.stmt) -> bool:
    match line:
        case ast.Assign(targets=[ast.Name("why" | "explained" | "change" | "published")]) | ast.FunctionDef("figure"):
            return True
        case ast.Expr(ast.Constant(str())):  # a docstring
            return True
        case ast.ImportFrom("seqlab.study.charts"):
            return True
    return False


def fixed(study: Study) -> str:
    """Commit that last changed the study's file, or a note if it is not committed."""
    file = study.file()
    if (changed := git(file.parent, "status", "--porcelain", "--", file.name)) is None:
        return "not under version control"
    last = git(file.parent, "log", "-1", "--format=%h of %cs", "--", file.name)
    return "changed since the last commit" if changed or not last else last


def _kept(artifacts: Path) -> list[Measured]:
    """Stored results of the first seeds, up to the first gap."""
    found: list[Measured] = []
    while (file := artifacts / "measured" / f"{len(found)}.json").is_file():
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        found.append(Measured(**content))
    return found
