"""A mixture of experts against its equations, its balance, its costs, and where its parts are known elsewhere."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from contracts.subjects import check_laws, decoder_subject
from references.mixture_of_experts import mixture_of_experts
from seqlab.attention import Attention, Bidirectional
from seqlab.budgets import forward_flops
from seqlab.laws import CAUSAL
from seqlab.models import DecoderLM, Encoder, Tagger
from seqlab.nn import Block, MixtureOfExperts, SwiGLU
from seqlab.nn.mixture_of_experts import balance, num_active_params
from seqlab.nn.stack import forget_activations
from seqlab.optim import DecayMatrices
from seqlab.positions import RoPE
from seqlab.tasks.mup import scale_weights
from tolerances import assert_close

Router = Literal["softmax", "sigmoid"]
D, E = 6, 4
PARTS = ("gate", "up", "down")
BOTH_WAYS = partial(Attention, pattern=Bidirectional)


def made(**options: Any) -> MixtureOfExperts:
    """A mixture of random weights in float64, whose biases matter."""
    mixture = MixtureOfExperts(D, **{"d_ff": 5, "num_experts": E, "balance_rate": 0.1, **options}).double()
    for weight in mixture.parameters():
        nn.init.normal_(weight)
    mixture.raises.copy_(torch.tensor([3, -2, 0, 1]))
    return mixture


@pytest.mark.parametrize("router", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("top_k", "num_shared"), [(1, 0), (2, 0), (3, 2), (4, 1)])
def test_outputs_and_gradients_are_the_equations(router: Router, top_k: int, num_shared: int) -> None:
    mixture = made(top_k=top_k, num_shared=num_shared, router=router)
    x = torch.randn(3, 7, D, dtype=torch.float64, requires_grad=True)
    weights = {name: weight.detach().requires_grad_() for name, weight in mixture.named_parameters()}
    tokens, probe = x.detach().flatten(0, 1).requires_grad_(), torch.randn(3, 7, D, dtype=torch.float64)
    biases = 0.1 * mixture.raises
    expected = mixture_of_experts(weights, tokens, top_k, router, biases).view_as(x)
    assert_close(y := mixture(x), expected)
    (y * probe).sum().backward()
    (expected * probe).sum().backward()
    assert x.grad is not None and tokens.grad is not None
    assert_close(x.grad.flatten(0, 1), tokens.grad)
    for name, weight in mixture.named_parameters():
        grad, wanted = weight.grad, weights[name].grad
        assert grad is not None and wanted is not None and grad.any(), name
        assert_close(grad, wanted, name)
    unbiased = mixture_of_experts(weights, tokens, top_k, router, torch.zeros(E))
    assert (top_k == E) == torch.allclose(unbiased, expected.flatten(0, 1))
    one = x[:1, :1]  # a token alone, in a sequence and in a step
    assert_close(mixture(one), y[:1, :1])
    assert_close(mixture(one[:, 0]), y[:1, 0])


def test_a_decoder_of_experts_keeps_the_laws() -> None:
    """Steps, chunks and padding, except that earlier outputs keep every bit: the tokens that an expert computes
    together are another matrix, so rounding differs."""
    subject = decoder_subject(Attention, RoPE, block=partial(Block, ffn=partial(MixtureOfExperts, num_shared=1)))
    check_laws([law for law in CAUSAL if law.__name__ != "later_inputs_move_no_earlier_output"], subject, (7,))
    x = subject.draw(2, 7)
    changed = torch.cat((x[:, :4], (x[:, 4:] + 1) % 11), dim=1)
    assert_close(subject.module(changed)[0][:, :4], subject.module(x)[0][:, :4])


def test_no_token_is_dropped() -> None:
    """All go to one expert; the others have no gradient from them."""
    mixture, x = made(top_k=1), torch.randn(50, D, dtype=torch.float64)
    mixture.raises.copy_(torch.tensor([0, 0, 1000, 0]))
    alone = SwiGLU(D, d_ff=5).double()
    alone.load_state_dict({f"{name}_proj.weight": mixture.state_dict()[f"{name}_proj.weight"][2] for name in PARTS})
    chosen, gates = mixture.route(x)
    assert (chosen == 2).all()
    assert_close(y := mixture(x), gates * alone(x))
    y.sum().backward()
    grad = mixture.up_proj.weight.grad
    assert grad is not None and [bool(part.any()) for part in grad] == [False, False, True, False]


def test_affinities_that_vanish_have_gates() -> None:
    mixture = made(router="sigmoid").float()
    nn.init.constant_(mixture.router.weight, -1e3)
    assert mixture(torch.ones(1, D)).isfinite().all()


@pytest.mark.parametrize(
    ("load", "raises", "largest"),
    [
        ([2, 2, 2, 2], [0, 0, 0, 0], 1.0),
        ([3, 2, 2, 1], [-1, 0, 0, 1], 1.5),
        ([1, 0, 0, 0], [-1, 1, 1, 1], 4.0),
        ([3, 3, 3, 2], [-1, -1, -1, 1], 12 / 11),  # the mean is 2.75
    ],
)
def test_a_bias_moves_towards_the_mean_load(load: list[int], raises: list[int], largest: float) -> None:
    model = nn.ModuleList([mixture := MixtureOfExperts(D, num_experts=E), even := MixtureOfExperts(D, num_experts=E)])
    mixture.load, even.load = torch.tensor(load), torch.ones(E, dtype=torch.int64)
    assert balance(model, lambda loads: (loads,)) == pytest.approx(largest)
    assert mixture.raises.tolist() == raises and even.raises.tolist() == [0] * E
    mixture.load = torch.tensor(load)
    balance(mixture, lambda loads: (loads,))
    assert mixture.raises.tolist() == [2 * step for step in raises]


def test_loads_are_those_of_training() -> None:
    mixture, x = made(top_k=3), torch.randn(5, 7, D, dtype=torch.float64)
    mixture(x), mixture(x[:2])
    chosen = torch.cat([mixture.route(part)[0].flatten() for part in (x, x[:2])])
    assert isinstance(mixture.load, Tensor) and mixture.load.sum() == 3 * (35 + 14)
    assert torch.equal(mixture.load, chosen.bincount(minlength=E))
    balance(mixture, lambda loads: (loads,))
    mixture.eval()(x)
    with torch.no_grad():
        mixture.train()(x)
    assert mixture.load == 0
    assert balance(nn.Linear(1, 1), lambda loads: (loads,)) is None


def decoder(num_layers: int = 2, d_model: int = 16, **options: Any) -> DecoderLM:
    block = partial(Block, ffn=partial(MixtureOfExperts, num_experts=E, **options))
    return DecoderLM(11, 16, d_model=d_model, num_layers=num_layers, block=block)


def mixtures(model: nn.Module) -> list[MixtureOfExperts]:
    return [part for part in model.modules() if isinstance(part, MixtureOfExperts)]


def test_recomputed_activations_change_neither_gradients_nor_balance() -> None:
    found = []
    for forget in (False, True):
        torch.manual_seed(0)
        model = decoder()
        if forget:
            forget_activations(model)
        tokens = torch.randint(11, (2, 16))
        model(tokens)[0].logsumexp(-1).sum().backward()
        largest = balance(model, lambda loads: (loads,))
        grads = [weight.grad for weight in model.parameters()]
        found.append((largest, *(part.raises for part in mixtures(model)), *grads))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_the_router_and_its_biases(dtype: torch.dtype) -> None:
    """In float32: small steps add up, and autocast does not round affinities."""
    mixture, x = MixtureOfExperts(D, num_experts=E), torch.randn(64, D)
    mixture.raises.fill_(2**20 + 1)
    chosen = mixture.route(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mixture.route(x)[0], chosen)
        assert_close(mixture(x), made_float(mixture, x), tolerance=4e-2)
    half = mixture.to(dtype)
    assert (half.raises == 2**20 + 1).all()
    assert half(x.to(dtype)).dtype == dtype and half.route(x.to(dtype))[1].dtype == torch.float32


def made_float(mixture: MixtureOfExperts, x: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        y: Tensor = mixture(x)
    return y


def test_costs_are_those_of_the_chosen_experts() -> None:
    """Router 8 x 16, three matrices 16 x 10 an expert, of which a token reads 3, and two shared ones."""
    options: dict[str, Any] = {"d_ff": 10, "num_experts": 8, "top_k": 3, "num_shared": 2}
    mixture = MixtureOfExperts(16, **options)
    assert sum(weight.numel() for weight in mixture.parameters()) == 8 * 16 + (8 + 2) * 480
    assert num_active_params(mixture) == 8 * 16 + (3 + 2) * 480
    assert num_active_params(SwiGLU(16, d_ff=10)) == 480
    block = partial(Block, ffn=partial(MixtureOfExperts, **options))
    model = Tagger(11, 3, 16, encoder=partial(Encoder, mixer=BOTH_WAYS, d_model=16, block=block))
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model.eval()(torch.zeros(1, 16, dtype=torch.int64))
    assert forward_flops(model, 16) == counter.get_total_flops()


@pytest.mark.parametrize(("top_k", "num_shared", "d_ff"), [(1, 0, 176), (2, 0, 88), (2, 1, 64), (6, 2, 24)])
def test_a_token_costs_what_it_costs_in_swiglu(top_k: int, num_shared: int, d_ff: int) -> None:
    """8/3 of 64, 170.7, by the number of experts, rounded up to a multiple of 8."""
    mixture = MixtureOfExperts(64, top_k=top_k, num_shared=num_shared)
    assert mixture.up_proj.weight.shape == (8, d_ff, 64) and mixture.down_proj.weight.shape == (8, 64, d_ff)
    assert mixture.shared is None or mixture.shared.up_proj.out_features == num_shared * d_ff


def test_experts_begin_and_decay_as_linear_layers() -> None:
    """Each of them: N(0, 0.02), less for those that write to the residual stream; or uniform (Glorot & Bengio)."""
    model = decoder(num_layers=2, d_model=64)
    for mixture in mixtures(model):
        for part, std in (("gate", 0.02), ("up", 0.02), ("down", 0.01)):
            weight = mixture.get_parameter(f"{part}_proj.weight")
            assert [each.std().item() for each in weight] == pytest.approx([std] * E, rel=0.05)
    encoder = Encoder(11, 16, mixer=BOTH_WAYS, d_model=64, block=partial(Block, ffn=MixtureOfExperts))
    begun = mixtures(encoder)[0].up_proj.weight.detach(), MixtureOfExperts(64).down_proj.weight.detach()
    assert [weight.abs().max() for weight in begun] == pytest.approx([math.sqrt(6 / (64 + 88)), 88**-0.5], rel=0.01)
    decayed = DecayMatrices(0.1)(model.named_parameters())[0]["params"]
    assert sum(weight.dim() == 3 for weight in decayed) == 6


def test_experts_scale_with_the_width_as_linear_layers() -> None:
    """Maximal-update parametrisation, from width 16 to 64: a hidden weight's rate is divided by its fan-in's growth."""
    base, model = decoder(d_model=16, d_ff=8), decoder(d_model=64, d_ff=8)
    factors = scale_weights(model, base)
    assert factors["stack.blocks.0.ffn.router.weight"] == 1 / 4  # an output of as many experts at any width
    assert factors["stack.blocks.0.ffn.up_proj.weight"] == 1 / 4
    assert factors["stack.blocks.0.ffn.down_proj.weight"] == 1
    base, model = decoder(d_model=24), decoder(d_model=96)  # widths 32 and 128
    factors = scale_weights(model, base)
    for part in PARTS:
        name = f"stack.blocks.0.ffn.{part}_proj.weight"
        assert factors[name] == 1 / 4
        sizes = [one.get_parameter(name).square().mean().sqrt().item() for one in (model, base)]
        assert sizes[0] / sizes[1] == pytest.approx(1 / 2, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_k": 9}, "top_k must be in 1 to num_experts, got top_k 9 and num_experts 8"),
        ({"top_k": 0}, "top_k must be in 1 to num_experts, got top_k 0 and num_experts 8"),
        ({"num_shared": -1}, "num_shared and balance_rate must be at least 0, got -1 and 0.001"),
        ({"balance_rate": math.nan}, "num_shared and balance_rate must be at least 0, got 0 and nan"),
        ({"d_ff": 0}, "the width of an expert must be at least 1, got 0"),
    ],
)
def test_what_is_no_mixture_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MixtureOfExperts(D, **options)
