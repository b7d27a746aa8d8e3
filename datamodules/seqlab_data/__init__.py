"""Data for seqlab: LightningDataModules and tokenizers.

Names are loaded when first used, so that `seqlab_data.tokenizers` needs neither torch nor Lightning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab_data.text import TextDataModule

__all__ = ["TextDataModule"]


def __getattr__(name: str) -> Any:
    if name == "TextDataModule":
        from seqlab_data.text import TextDataModule

        return TextDataModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
