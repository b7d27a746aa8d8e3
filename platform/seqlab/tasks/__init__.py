"""Tasks: LightningModules that wrap a model with its loss, metrics and optimiser."""

from seqlab.tasks.language_modeling import LanguageModeling

__all__ = ["LanguageModeling"]
