"""Base class of studies: claims, measurements and figures, all fixed before a study runs."""

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
"""Table rows, each with numbers and texts by column name."""


class Measured(NamedTuple):
    """Measurements of one seed.

    Attributes:
        values: one number per case and control of the claims.
        points: data of the figures.
        needs: missing requirement of each claim that cannot be tested.
    """

    values: Mapping[str, float]
    points: Points
    needs: Mapping[str, str] = {}


class Study(ABC):
    """A research question and its test. Each study has a separate file.

    Attributes:
        name: name of the study and of its MLflow experiment.
        question: question that the study answers; title of its page.
        claims: claims that receive a verdict.
        matched: what is equal in all cases, and other assumptions of the measurement.
        why: explanation of the result at scale `explained`, in a few sentences; shown for no other scale.
        change: what would change the result.
        published: published results, and how their measurement differs; empty = none known.
    """

    name: ClassVar[str]
    question: ClassVar[str]
    claims: ClassVar[tuple[Claim, ...]]
    matched: ClassVar[str]
    why: ClassVar[str]
    explained: ClassVar[Scale] = "cpu"
    change: ClassVar[str]
    published: ClassVar[str] = ""

    def arms(self, scale: Scale) -> Sequence[Arm]:
        """Models to fit before measuring."""
        return ()

    @abstractmethod
    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        """Measures one seed.

        Args:
            runs: runs of the arms with this seed, by arm name.
        """

    @abstractmethod
    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        """Figure of a claim.

        Args:
            points: rows of all seeds, each with its `seed`.
        """

    def judge(self, seeds: Sequence[Measured]) -> dict[str, Judgement]:
        """Judgement of each claim, by key."""
        by_case = {case: [seen.values[case] for seen in seeds] for case in seeds[0].values}
        return {claim.key: judge(claim, by_case, seeds[0].needs.get(claim.key, "")) for claim in self.claims}

    @classmethod
    def file(cls) -> Path:
        """File that declares the study."""
        return Path(inspect.getfile(cls))
