"""A bundle as a task's model, so that the task can score both alike.

B batch, T new tokens, V vocabulary, M source length.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqlab.mixer import State
from seqlab_export.reports.torch_runtime import to_arrays, to_tensors
from seqlab_export.runner.graph_runner import BundleRunner, open_bundle


class BundleModel(nn.Module):
    """Module that runs a bundle with onnxruntime on the CPU.

    Args:
        folder: folder of the bundle.
        model: model of the bundle. Its attributes (such as `mask_id`) are exposed, except the output layer, since a
            bundle returns logits, not features; its weights are not used.
    """

    def __init__(self, folder: Any, model: nn.Module) -> None:
        super().__init__()
        self.bundle = open_bundle(folder)
        self.__dict__["model"] = model
        # Lightning and decoders read a model's device from its parameters.
        self.device_holder = nn.Parameter(torch.zeros(0))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "output":
                raise
            return getattr(self.__dict__["model"], name)

    def forward(self, inputs: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> Any:
        """inputs (B, T) or (B, T, F) to an encoder's logits, or to a decoder's (B, T, V) and the new state."""
        mask = np.ones(inputs.shape[:2], dtype=np.bool_) if pad_mask is None else pad_mask.numpy()
        if not isinstance(self.bundle, BundleRunner):
            return torch.from_numpy(self.bundle.encode(inputs.numpy(), mask)["logits"])
        return self._read("model", inputs, mask, state)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """tokens (B,) to logits (B, V), and the new state."""
        logits, new_state = self._read("step", tokens[:, None], np.ones((len(tokens), 1), dtype=np.bool_), state)
        return logits[:, 0], new_state

    def begin(self, source: Tensor, source_mask: Tensor) -> State:
        """source and source_mask (B, M) to the decoder's first state."""
        return to_tensors(self.bundle.encode(source.numpy(), source_mask.numpy()))

    def _read(self, graph: Any, tokens: Tensor, mask: Any, state: State | None) -> tuple[Tensor, State]:
        runner: Any = self.bundle
        given = to_arrays(state) if state else runner.init_state(len(tokens))
        logits, new = runner.read(graph, tokens.numpy(), mask, given)
        return torch.from_numpy(logits), to_tensors(new)


def with_model(task: Any, model: nn.Module) -> Any:
    """A copy of a task around another model."""
    other = copy(task)
    other._modules = {**task._modules, "model": model}
    return other


def score(task: Any, model: nn.Module, datamodule: Any) -> dict[str, float]:
    """Test scores of a model on the test split, computed by its task, except scores by length and position."""
    import lightning as L

    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    [found] = trainer.test(with_model(task, model).eval(), datamodule, verbose=False)
    return {name.removeprefix("test/"): value for name, value in found.items() if "_by_" not in name}
