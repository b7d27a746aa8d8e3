"""seqlab: compare sequence models, track every run, ship the winner as a proven ONNX bundle.

    fit, sweep, export, verify, page     the verbs of these names, as functions
    compare                 runs side by side, sorted by a metric; its `frame()` is a DataFrame
    load_run, LoadedRun     a run's model, tokenizer and data module, from the run alone
    open_text_model         a run as a `TextModel`: write, translate, classify, probabilities
    generate                the decoding loop over ids, of any model
    attention, recurrence, positions, nn, models    the blocks
    Mixer, State, StateEntry    the contract of every block that mixes over time, its state, and the state's declaration

Names are imported on first use, so that `import seqlab` is light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab import attention, models, nn, positions, recurrence
    from seqlab.cli.functions import export, fit, page, sweep, verify
    from seqlab.comparison.comparison import compare
    from seqlab.decoding import generate
    from seqlab.decoding.text_model import TextModel
    from seqlab.mixer import Mixer, State, StateEntry
    from seqlab.trained.load import LoadedRun, load_run
    from seqlab.trained.run_text_model import open_text_model

__version__ = "0.2.0"
__all__ = [
    "LoadedRun",
    "Mixer",
    "State",
    "StateEntry",
    "TextModel",
    "attention",
    "compare",
    "export",
    "fit",
    "generate",
    "load_run",
    "models",
    "nn",
    "open_text_model",
    "page",
    "positions",
    "recurrence",
    "sweep",
    "verify",
]
_PLACES = {
    "Entry": "seqlab.mixer",  # former name of StateEntry, in mixers of users
    "LoadedRun": "seqlab.trained.load",
    "Mixer": "seqlab.mixer",
    "State": "seqlab.mixer",
    "StateEntry": "seqlab.mixer",
    "TextModel": "seqlab.decoding.text_model",
    "compare": "seqlab.comparison.comparison",
    "export": "seqlab.cli.functions",
    "fit": "seqlab.cli.functions",
    "generate": "seqlab.decoding",
    "load_run": "seqlab.trained.load",
    "open_text_model": "seqlab.trained.run_text_model",
    "page": "seqlab.cli.functions",
    "sweep": "seqlab.cli.functions",
    "verify": "seqlab.cli.functions",
}


def __getattr__(name: str) -> Any:
    if name not in __all__ and name not in _PLACES:
        raise AttributeError(f"module 'seqlab' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_PLACES[name]), name) if name in _PLACES else import_module(f"seqlab.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
