"""Mixers that attend to an encoder's memory: what memory does, and what is refused.

(The laws and the references hold them too, with one memory for all rows, some of it pads.)
"""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from contracts.cases import D_MODEL, MIXERS, MixerCase
from contracts.subjects import decoder_subject, randomized
from seqlab.attention.memory import MemoryMixer
from seqlab.laws import GARBAGE
from seqlab.positions import ALiBi, Learned, NoPositions, RoPE
from tolerances import TOLERANCE, assert_close

WITH_MEMORY = [mixer for mixer in MIXERS if mixer.memory]
mixers = pytest.mark.parametrize("case", WITH_MEMORY, ids=lambda case: case.name)
BATCH, LENGTH, SOURCE = 3, 7, 9


def _built(case: MixerCase) -> tuple[MemoryMixer, Tensor, Tensor]:
    """The mixer, an input and a memory, another one for each row."""
    x, memory = torch.randn(BATCH, LENGTH, D_MODEL).double(), torch.randn(BATCH, SOURCE, D_MODEL).double()
    return randomized(case.factory(D_MODEL, 0)), x, memory


def _outputs(mixer: MemoryMixer, x: Tensor, memory: Tensor) -> Tensor:
    """(B, T, D): of forward to the middle, and of the steps that continue from there."""
    y, state = mixer(x[:, :4], mixer.init_state(len(x), memory))
    outputs = [y]
    for t in range(4, x.shape[1]):
        y_t, state = mixer.step(x[:, t], state)
        outputs.append(y_t.unsqueeze(1))
    return torch.cat(outputs, dim=1)


@torch.no_grad()
@mixers
def test_each_row_reads_its_own_memory(case: MixerCase) -> None:
    mixer, x, memory = _built(case)
    y = _outputs(mixer, x, memory)
    for row in range(BATCH):
        one = slice(row, row + 1)
        assert_close(y[one], _outputs(mixer, x[one], memory[one]), f"row {row}")
    changed = memory.clone()
    changed[1] += 1  # all of it: local attention does not see every position
    moved = (_outputs(mixer, x, changed) - y).abs().amax(dim=-1)
    assert (moved[1] > 0).all(), "a change of the memory did not move every output"
    assert not moved[[0, 2]].any(), "a change of one row's memory moved another row"


@torch.no_grad()
@mixers
def test_its_memory_never_changes_and_no_two_entries_are_one_tensor(case: MixerCase) -> None:
    """In a graph each entry is an output of its own."""
    mixer, x, memory = _built(case)
    state = mixer.init_state(BATCH, memory)
    names = ("memory_k", "memory_v", "memory_mask")
    for later in (mixer(x, state)[1], mixer.step(x[:, 0], state)[1]):
        assert all(later[name] is state[name] for name in names)
    assert {name for name in state if name.startswith("memory_")} == set(names)
    assert len({state[name].data_ptr() for name in names}) == 3


@mixers
def test_a_row_without_memory_attends_to_nothing(case: MixerCase) -> None:
    mixer, x, memory = _built(case)
    mask = torch.ones(BATCH, SOURCE, dtype=torch.bool)
    mask[1] = False
    leaves = [memory.requires_grad_(), *mixer.parameters()]
    y, _ = mixer(x, mixer.init_state(BATCH, memory, mask))
    gradients = torch.autograd.grad(y.square().sum(), leaves, materialize_grads=True)
    assert y.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][1].any() and gradients[0][[0, 2]].any()
    weights = mixer.attention_weights(x, mixer.init_state(BATCH, memory, mask))
    assert not weights[1].any() and weights[0].any()


@torch.no_grad()
@mixers
def test_attention_weights(case: MixerCase) -> None:
    """(B, H, T, S), in one call as in two."""
    mixer, x, memory = _built(case)
    weights = mixer.attention_weights(x, mixer.init_state(BATCH, memory))
    assert weights.shape == (BATCH, getattr(mixer, "num_heads", 1), LENGTH, SOURCE)
    _, state = mixer(x[:, :3], mixer.init_state(BATCH, memory))
    assert_close(mixer.attention_weights(x[:, 3:], state), weights[:, :, 3:])
    mask = F.pad(torch.ones(BATCH, SOURCE, dtype=torch.bool), (2, 3))
    of_pads = mixer.init_state(BATCH, F.pad(memory, (0, 0, 2, 3), value=GARBAGE), mask)
    found = mixer.attention_weights(x, of_pads)
    assert (found[..., ~mask[0]] == 0).all(), "a pad in the memory has weight"
    assert_close(found[..., mask[0]], weights)
    pad_mask = torch.ones(BATCH, LENGTH + 2, dtype=torch.bool)
    pad_mask[:, :2] = False
    padded = torch.cat((GARBAGE * torch.randn(BATCH, 2, D_MODEL).double(), x), dim=1)
    padded_weights = mixer.attention_weights(padded, mixer.init_state(BATCH, memory), pad_mask=pad_mask)
    assert_close(padded_weights[:, :, 2:], weights)


@mixers
def test_runs_in_mixed_precision(case: MixerCase) -> None:
    mixer, x, memory = _built(case)
    mixer.float()
    x, memory = x.float(), memory.float()
    if getattr(mixer, "window", None) is not None:
        # Its edges stay between two positions, where no rounding lets one in or out.
        mixer.window.v.data.mul_(0.02)
    expected, expected_state = mixer(x, mixer.init_state(BATCH, memory))
    with torch.autocast("cpu", torch.bfloat16):
        y, state = mixer(x[:, :-1], mixer.init_state(BATCH, memory))
        last, _ = mixer.step(x[:, -1], state)
        y.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters() if parameter.grad is not None)
    assert_close(torch.cat((y, last.unsqueeze(1)), dim=1), expected, tolerance=TOLERANCE[torch.bfloat16])
    carried = [name for name in expected_state if not name.startswith("memory_")]
    assert all(state[name].dtype == torch.float32 for name in carried)


@mixers
def test_what_does_not_fit_is_refused(case: MixerCase) -> None:
    mixer, x, memory = _built(case)
    name = type(mixer).__name__
    mask = torch.ones(BATCH, SOURCE, dtype=torch.bool)
    for call in (lambda: mixer(x), lambda: mixer.init_state(BATCH), lambda: mixer.attention_weights(x)):
        with pytest.raises(ValueError, match=f"{name} attends to an encoder's memory, but none was given"):
            call()
    needed = rf"memory of {name} must be .* = \(3, S, 16\), got "
    for wrong in (memory[:2], memory[0], memory[..., :8]):
        with pytest.raises(ValueError, match=needed + re.escape(str(tuple(wrong.shape)))):
            mixer.init_state(BATCH, wrong)
    with pytest.raises(ValueError, match=rf"memory_mask of {name} must be bool of shape \(3, 9\).*of shape \(3, 8\)"):
        mixer.init_state(BATCH, memory, mask[:, 1:])
    with pytest.raises(ValueError, match=f"memory_mask of {name} must be bool.*torch.float32"):
        mixer.init_state(BATCH, memory, mask.float())
    state = mixer.init_state(BATCH, memory)
    with pytest.raises(ValueError, match=rf"memory_k has shape \(3, .* but {name} and a batch of 2 need \(2, "):
        mixer(x[:2], state)
    with pytest.raises(ValueError, match=f"the state has entries .'memory_v'.*, but {name} needs .'memory_k'"):
        mixer.step(x[:, 0], {name: entry for name, entry in state.items() if name != "memory_k"})
    with pytest.raises(ValueError, match=rf"memory_mask has shape \(3, 8\), but {name} .* need \(3, 9\)"):
        mixer(x, state | {"memory_mask": mask[:, 1:]})
    for fitting in (NoPositions, Learned):
        mixer.attach_positions(fitting(D_MODEL, 8))
    for positions in (RoPE, ALiBi):
        with pytest.raises(ValueError, match=f"{positions.__name__} acts on .* by distance, but {name} attends to"):
            mixer.attach_positions(positions(D_MODEL, 8))
    with pytest.raises(ValueError, match=f"{name} attends to an encoder's memory, but none was given"):
        decoder_subject(case.factory, NoPositions)
