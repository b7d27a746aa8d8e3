"""All studies."""

from __future__ import annotations

from seqlab.studies.bottleneck import Bottleneck
from seqlab.studies.cost import Cost
from seqlab.studies.exposure import Exposure
from seqlab.studies.heads import Heads
from seqlab.studies.joined import Joined
from seqlab.studies.layers import Layers
from seqlab.studies.length import Length
from seqlab.studies.long_dates import LongDates
from seqlab.studies.longer import Longer
from seqlab.studies.look_up import LookUp
from seqlab.studies.masks import Masks
from seqlab.studies.memory import Memory
from seqlab.studies.objective import Objective
from seqlab.studies.order import Order
from seqlab.studies.pace import Pace
from seqlab.studies.parity import Parity
from seqlab.studies.price import Price
from seqlab.studies.recall import Recall
from seqlab.studies.saturation import Saturation
from seqlab.studies.scale_of_scores import ScaleOfScores
from seqlab.studies.shuffled import Shuffled
from seqlab.studies.speed import Speed
from seqlab.studies.study import Study
from seqlab.studies.sums import Sums
from seqlab.studies.worked_numbers import WorkedNumbers

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Bottleneck(),
        Cost(),
        Exposure(),
        Heads(),
        Joined(),
        Layers(),
        Length(),
        LongDates(),
        Longer(),
        LookUp(),
        Masks(),
        Memory(),
        Objective(),
        Order(),
        Pace(),
        Parity(),
        Price(),
        Recall(),
        Saturation(),
        ScaleOfScores(),
        Shuffled(),
        Speed(),
        Sums(),
        WorkedNumbers(),
    )
}


def study_named(name: str) -> Study:
    """
    Raises:
        ValueError: there is no such study.
    """
    if name not in STUDIES:
        raise ValueError(f"there is no study {name}; accepted: {', '.join(STUDIES)}")
    return STUDIES[name]
