"""All studies."""

from __future__ import annotations

from seqlab.study.study import Study
from seqlab_studies.bottleneck import Bottleneck
from seqlab_studies.cost import Cost
from seqlab_studies.exposure import Exposure
from seqlab_studies.heads import Heads
from seqlab_studies.joined import Joined
from seqlab_studies.layers import Layers
from seqlab_studies.length import Length
from seqlab_studies.long_dates import LongDates
from seqlab_studies.longer import Longer
from seqlab_studies.look_up import LookUp
from seqlab_studies.masks import Masks
from seqlab_studies.memory import Memory
from seqlab_studies.objective import Objective
from seqlab_studies.order import Order
from seqlab_studies.pace import Pace
from seqlab_studies.parity import Parity
from seqlab_studies.price import Price
from seqlab_studies.recall import Recall
from seqlab_studies.saturation import Saturation
from seqlab_studies.scale_of_scores import ScaleOfScores
from seqlab_studies.shuffled import Shuffled
from seqlab_studies.speed import Speed
from seqlab_studies.sums import Sums
from seqlab_studies.worked_numbers import WorkedNumbers

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
