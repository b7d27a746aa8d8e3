"""Data for seqlab.

    TextDataModule              text as windows of tokens, for language models
    ParallelTextDataModule      pairs of a source text and a target text
    LabelledTextDataModule      texts with one class label each
    TaggedTextDataModule        sentences with a tag for each word
    TableDataModule             sequences of numbers, with a class, a number or labels
    ImageDataModule             images as sequences of patches
    SyntheticDataModule         examples of a synthetic task, generated on the fly
    AddingDataModule            the adding problem
    SequenceDataModule          base class for custom data modules; SentenceDataModule is the base for separate texts
    tokenizers, synthetic       subpackages; `tokenizers` needs neither torch nor Lightning

All names are imported lazily.
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
_PLACES = {
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
    if name not in _PLACES:
        raise AttributeError(f"module 'seqlab_data' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
