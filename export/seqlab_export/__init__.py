"""Proven ONNX bundles.

    export_bundle       exports a model as a verified bundle, all or nothing; needs PyTorch
    open_bundle         opens a bundle's graphs: arrays in, arrays out
    open_text_model     opens a bundle as a `seqlab.TextModel`: write, translate, classify, probabilities
    verify_bundle       verifies a bundle again

All names are imported lazily: all but `export_bundle` need only NumPy and onnxruntime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab_export.bundle import export_bundle
    from seqlab_export.runner.bundle_text_model import open_text_model
    from seqlab_export.runner.graph_runner import open_bundle
    from seqlab_export.runner.verify import verify_bundle

__all__ = ["export_bundle", "open_bundle", "open_text_model", "verify_bundle"]


def __getattr__(name: str) -> Any:
    match name:
        case "export_bundle":
            from seqlab_export.bundle import export_bundle as found
        case "open_bundle":
            from seqlab_export.runner.graph_runner import open_bundle as found  # type: ignore[assignment]
        case "open_text_model":
            from seqlab_export.runner.bundle_text_model import open_text_model as found  # type: ignore[assignment]
        case "verify_bundle":
            from seqlab_export.runner.verify import verify_bundle as found  # type: ignore[assignment]
        case _:
            raise AttributeError(f"module 'seqlab_export' has no attribute {name!r}; it has {', '.join(__all__)}")
    return found
