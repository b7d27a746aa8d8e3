"""Size of recurrent states, and saturation of gates, while a model is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from seqlab.mixer import Mixer
from seqlab.models.reading import read
from seqlab.probes.gates import activations, saturated
from seqlab.probes.probe import Probe
from seqlab.recurrence.fused import FusedRecurrence


class StateProbe(Probe):
    """Logs in each validation, for each layer with a recurrent state, the root mean square of each state entry after
    the last real token, `state/LAYER/ENTRY_rms`. RNN, LSTM and GRU also log the saturated fraction of their activations
    at real tokens: `state/LAYER/gates_saturated`, sigmoids below 0.1 or above 0.9, and `state/LAYER/tanhs_saturated`,
    beyond +-0.9. Bidirectional layers have gates but no state.

    Args:
        rows: number of rows of the first batch, pooled in each value.
    """

    def check(self, model: nn.Module) -> None:
        if not _recurrent(model):
            raise ValueError(
                f"StateProbe needs a layer with a recurrent state, but this {type(model).__name__} has none; remove "
                "the probe"
            )

    def find(self, model: nn.Module, batch: Any) -> dict[str, float]:
        found: dict[str, float] = {}

        def look(layer: str) -> Callable[..., None]:
            def hook(mixer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: tuple[Any, ...]) -> None:
                for entry in _sums(mixer):
                    found[f"state/{layer}/{entry}_rms"] = float(out[1][entry].double().square().mean().sqrt())
                if isinstance(mixer, FusedRecurrence):
                    shares = saturated(activations(mixer, *args, **kwargs), kwargs.get("pad_mask"))
                    found.update({f"state/{layer}/{kind}_saturated": share for kind, share in shares.items()})

            return hook

        handles = [
            mixer.register_forward_hook(look(layer), with_kwargs=True) for layer, mixer in _recurrent(model).items()
        ]
        try:
            read(model, batch)
        finally:
            for handle in handles:
                handle.remove()
        return found


def _recurrent(model: nn.Module) -> dict[str, Mixer]:
    """Recurrent layers by their place in the model: "0", "encoder/0"."""
    return {
        name.removesuffix(".mixer").replace("stack.blocks.", "").replace(".", "/"): module
        for name, module in model.named_modules()
        if isinstance(module, FusedRecurrence) or (isinstance(module, Mixer) and _sums(module))
    }


def _sums(mixer: Mixer) -> list[str]:
    """Names of the state entries that summarise the past."""
    return [entry.name for entry in mixer.state_spec() if entry.kind == "fixed"]
