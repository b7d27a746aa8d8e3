"""Fits of a study's arms, each at its best learning rate in validation and with each seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from seqlab.sweeps.fits import score
from seqlab.sweeps.several import Job, fit_all
from seqlab.tracking.runs import PARENT_TAG, TrackedRun


@dataclass(frozen=True)
class Arm:
    """One of the models that a study compares.

    Attributes:
        name: name of the arm.
        fit: arguments of `seqlab fit`, including `--config`.
        rates: learning rates tried with the first seed; other seeds use the best one.
        seeds: options that are set to the seed: the seed of the weights, and of the order or generation of the data.
    """

    name: str
    fit: tuple[str, ...]
    rates: tuple[float, ...]
    seeds: tuple[str, ...] = ("seed_everything", "data.seed")

    def job(self, rate: float, seed: int) -> str:
        """Run name of a fit; it changes with the arm's arguments."""
        digest = hashlib.sha256(json.dumps([self.fit, self.seeds]).encode()).hexdigest()[:6]
        return f"{self.name.replace(' ', '-')}-{digest}-lr{rate:g}-s{seed}"

    def flags(self, rate: float, seed: int) -> list[str]:
        return [*self.fit, f"--model.lr={rate:g}", *(f"--{option}={seed}" for option in self.seeds)]


def fit_arms(arms: Sequence[Arm], experiment: str, seed: int, at_once: int, parent: str) -> dict[str, TrackedRun]:
    """Runs of all arms with this seed, by arm name. Finished fits are not repeated.

    Args:
        at_once: number of concurrent fits, each with an equal share of the cores.
        parent: id of the run below which MLflow shows the fits.

    Raises:
        ValueError: all rates of an arm, or its fit with this seed, failed; the fit's log has the reason.
        StoppedError: a signal was received. The fits have written checkpoints, from which the same call continues.
    """
    tried = _fit([(arm, rate, 0) for arm in arms for rate in arm.rates], experiment, at_once, parent)
    best = {}
    for arm in arms:
        runs = {rate: tried[job] for rate in arm.rates if (job := arm.job(rate, 0)) in tried}
        if not runs:
            raise ValueError(f"arm {arm.name}: no learning rate could be fitted")
        best[arm.name] = min(runs, key=lambda rate: score(runs[rate], "val/loss"))
    chosen = [(arm, best[arm.name], seed) for arm in arms]
    fitted = tried if seed == 0 else _fit(chosen, experiment, at_once, parent)
    if missing := [arm.name for arm, rate, _ in chosen if arm.job(rate, seed) not in fitted]:
        raise ValueError(f"with seed {seed}, could not be fitted: {', '.join(missing)}")
    return {arm.name: fitted[arm.job(rate, seed)] for arm, rate, _ in chosen}


def _fit(wanted: Sequence[tuple[Arm, float, int]], experiment: str, at_once: int, parent: str) -> dict[str, TrackedRun]:
    """Fits the missing ones of the wanted jobs, and returns all finished runs of the experiment by job."""
    jobs = [
        Job(arm.job(rate, seed), arm.flags(rate, seed), {PARENT_TAG: parent, "arm": arm.name})
        for arm, rate, seed in wanted
    ]
    return fit_all(jobs, experiment, at_once)
