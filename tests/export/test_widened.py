"""A float64 copy of a model whose matrices stay in float32 computes what a whole float64 copy does."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from contracts.subjects import randomized
from export.test_encoder_bundles import WRITING
from export.toys import TOYS, toy
from seqlab_export.capture.graph_forms import forms_of
from seqlab_export.proof import widened
from seqlab_export.proof.widened import Widened, in_float64

TOKENS = torch.arange(12).reshape(2, 6) % 7


def computed(model: Any) -> list[torch.Tensor]:
    """Outputs of all forms of a model."""
    found: list[torch.Tensor] = []
    mask, forms = torch.ones_like(TOKENS, dtype=torch.bool), forms_of(model)
    state: Any = model.init_state(2) if "encoder" not in forms else forms["encoder"](TOKENS, mask)
    if not model.kind.decodes:
        return [state]
    for form, read in (("model", slice(0, 6)), ("step", slice(5, 6))):
        logits, new = forms[form](TOKENS[:, read], mask[:, read], state)
        found += [logits, *new.values()]
        state = state | new
    return found


@torch.no_grad()
@pytest.mark.parametrize("name", [*TOYS, *WRITING])
def test_it_computes_in_float64(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widened, "LEAST", 0)
    monkeypatch.setattr(widened, "BLOCK", 50)
    model: Any = toy(*TOYS[name][:2], 1) if name in TOYS else randomized(WRITING[name]())
    model = model.float().eval()
    copy = in_float64(model)
    assert any(isinstance(given, Widened) for given in copy.parameters())
    for found, expected in zip(computed(copy), computed(deepcopy(model).double()), strict=True):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "stays"), [(2**16, True), (2**16 - 1, False)])
def test_a_large_matrix_shares_the_models_memory(size: int, stays: bool) -> None:
    layer = torch.nn.Linear(size, 1, bias=False)
    [weight] = in_float64(layer).parameters()
    assert isinstance(weight.data, Widened) == stays and weight.dtype == torch.float64
    assert not stays or weight.in_float32.data_ptr() == layer.weight.data_ptr()
    assert layer.weight.dtype == torch.float32


def test_tied_layers_stay_tied() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(2**9, 2**7), torch.nn.Linear(2**7, 2**9))
    model[1].weight = model[0].weight
    copy = in_float64(model)
    assert copy[0].weight is copy[1].weight
