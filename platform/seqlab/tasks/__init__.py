"""Tasks: LightningModules that wrap a model with its loss, metrics and optimiser."""

from seqlab.tasks.classification import Classification
from seqlab.tasks.distillation import Distillation
from seqlab.tasks.language_modeling import Answering, LanguageModeling
from seqlab.tasks.masked_language_modeling import MaskedLanguageModeling
from seqlab.tasks.multilabel_classification import MultilabelClassification
from seqlab.tasks.regression import Regression
from seqlab.tasks.scheduled_sampling import ScheduledSampling
from seqlab.tasks.tagging import Tagging
from seqlab.tasks.translation import Translation

__all__ = [
    "Answering",
    "Classification",
    "Distillation",
    "LanguageModeling",
    "MaskedLanguageModeling",
    "MultilabelClassification",
    "Regression",
    "ScheduledSampling",
    "Tagging",
    "Translation",
]
