"""Base of studies: claims, what is measured for them, and figures, all fixed before a study runs."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from seqlab.study.arms import Arm
from seqlab.study.rules import Claim, Judgement, judge
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

Scale = Literal["smoke", "cpu", "gpu"]
Points = list[dict[str, Any]]
"""Rows of numbers and texts, by column."""


class Measured(NamedTuple):
    """Results of one seed.

    Attributes:
        values: a number for each case and each control of the claims.
        points: what the figures show.
        needs: by claim, what is missing to test it.
    """

    values: Mapping[str, float]
    points: Points
    needs: Mapping[str, str] = {}


class Study(ABC):
    """A question of the field and its test. One file each.

    Attributes:
        name: of the study and of its experiment in MLflow.
        question: its title.
        claims: each gets a verdict.
        matched: what is the same in all cases, and what else the measure rests on.
        why: what the result comes from, in a few sentences, whichever it is.
        change: what would change it.
        published: published results, and how they were measured otherwise; empty where none is at hand.
    """

    name: ClassVar[str]
    question: ClassVar[str]
    claims: ClassVar[tuple[Claim, ...]]
    matched: ClassVar[str]
    why: ClassVar[str]
    change: ClassVar[str]
    published: ClassVar[str] = ""

    def arms(self, scale: Scale) -> Sequence[Arm]:
        """Models that are fitted before anything is measured."""
        return ()

    @abstractmethod
    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        """Measures one seed.

        Args:
            runs: of the arms with this seed, by the arm's name.
        """

    @abstractmethod
    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        """
        Args:
            points: of all seeds; each row has its `seed`.
        """

    def judge(self, seeds: Sequence[Measured]) -> dict[str, Judgement]:
        """Judgement of each claim, by its key."""
        by_case = {case: [seen.values[case] for seen in seeds] for case in seeds[0].values}
        return {claim.key: judge(claim, by_case, seeds[0].needs.get(claim.key, "")) for claim in self.claims}

    @classmethod
    def file(cls) -> Path:
        """The file that declares it."""
        return Path(inspect.getfile(cls))
