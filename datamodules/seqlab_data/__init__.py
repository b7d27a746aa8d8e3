"""Data for seqlab: LightningDataModules, what data modules of one's own begin with, and tokenizers.

Names are loaded when first used, so that `seqlab_data.tokenizers` needs neither torch nor Lightning.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab_data.adding import AddingDataModule
    from seqlab_data.base import SequenceDataModule
    from seqlab_data.images import ImageDataModule
    from seqlab_data.labelled import LabelledTextDataModule
    from seqlab_data.parallel import ParallelTextDataModule
    from seqlab_data.sentences import SentenceDataModule
    from seqlab_data.synthetic import SyntheticDataModule
    from seqlab_data.tables import TableDataModule
    from seqlab_data.tagged import TaggedTextDataModule
    from seqlab_data.text import TextDataModule

__all__ = [
    "AddingDataModule",
    "ImageDataModule",
    "LabelledTextDataModule",
    "ParallelTextDataModule",
    "SentenceDataModule",
    "SequenceDataModule",
    "SyntheticDataModule",
    "TableDataModule",
    "TaggedTextDataModule",
    "TextDataModule",
]
MODULES = {
    "AddingDataModule": "seqlab_data.adding",
    "ImageDataModule": "seqlab_data.images",
    "LabelledTextDataModule": "seqlab_data.labelled",
    "ParallelTextDataModule": "seqlab_data.parallel",
    "SentenceDataModule": "seqlab_data.sentences",
    "SequenceDataModule": "seqlab_data.base",
    "SyntheticDataModule": "seqlab_data.synthetic",
    "TableDataModule": "seqlab_data.tables",
    "TaggedTextDataModule": "seqlab_data.tagged",
    "TextDataModule": "seqlab_data.text",
}


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
