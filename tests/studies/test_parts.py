"""Measurements of one head, of heads, masks, layers, states and costs, where the answer is known."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from seqlab.attention import Attention, SlidingWindow
from seqlab.budgets import forward_flops
from seqlab.models import DecoderLM
from seqlab.nn import Block, NoFeedForward
from seqlab.nn.residual import NoResidual
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, MLSTM, CausalConv
from seqlab.study.rules import Interval, Rule, Verdict
from seqlab_studies import cost, masks, recall
from seqlab_studies.cost import QUADRATIC, SHORT, counted
from seqlab_studies.heads import FIRST, places, planted, repeated, roles, score
from seqlab_studies.layers import DEPTH, Mean, Squash, spread, stack, through
from seqlab_studies.lib.sizes import preset, size_of
from seqlab_studies.lib.timing import exponent
from seqlab_studies.price import FITS, printed_and_ours
from seqlab_studies.recall import PAIRS, SYMBOLS, state_size
from seqlab_studies.scale_of_scores import BATCH, LENGTH, attend

TOKENS = torch.randint(0, 5, (6, 32), generator=torch.Generator().manual_seed(0))


def test_places_of_each_role_by_hand() -> None:
    tokens = torch.tensor([[7, 8, 7, 9, 8]])
    # In induction, 8 followed 7, and 7 followed 8.
    for role, query, key in (
        *(("previous", 3, 2), ("same", 4, 1), ("beginning", 4, 0)),
        *(("induction", 2, 1), ("induction", 4, 2)),
    ):
        assert places(role, tokens)[0][query].nonzero().flatten().tolist() == [key], role


def test_scores_of_heads_whose_role_is_known() -> None:
    assert planted("even", TOKENS) == pytest.approx(0, abs=1e-6)
    even = sum(1 / (t + 1) for t in range(FIRST, 32)) / (32 - FIRST)
    assert planted("previous", TOKENS) == pytest.approx(1 - even)
    twice = repeated(TOKENS, 0)
    assert torch.equal(twice[:, :16], twice[:, 16:])
    wanted = places("induction", twice) & torch.ones(32, 32).tril().bool()
    found = wanted / wanted.sum(-1, keepdim=True).clamp(min=1)
    assert score(found.unsqueeze(1), wanted) > 0.6 > score(found.unsqueeze(1), places("previous", twice)) + 0.5
    model = DecoderLM(5, 32, d_model=8, num_layers=2, mixer=Attention, positions=NoPositions).eval()
    assert len(roles(model, {"previous": TOKENS})["previous"]) == 8, "one of each head"


def peeks(tokens: Tensor) -> tuple[Tensor, None]:
    """Predicts the next character, and the first one at the last place."""
    following = torch.cat((tokens[:, 1:], torch.zeros_like(tokens[:, :1])), 1)
    return 50.0 * one_hot(following, masks.SYMBOLS), None


def test_one_that_peeks_knows_all_and_writes_nothing_and_masked_models_do_not() -> None:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(masks.SYMBOLS, (5, masks.LENGTH), generator=draw)
    assert masks.whole(peeks, tokens) < 1e-6 and masks.before(peeks, tokens) > 40
    assert masks.changes(peeks, tokens) > 0
    for name, mixer in masks.MIXERS.items():
        found = masks.changes(masks.model_of(mixer), tokens)
        assert found > -3 if name == "attention, not masked" else found < -12, name
    assert masks.entropy(torch.tensor([[0, 0, 2, 2]])) == pytest.approx(math.log(2))


def draw() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_a_head_against_attention_by_hand() -> None:
    found, again = attend(16, 1.0, draw()), draw()
    q_proj, k_proj, v_proj, out_proj = (
        torch.randn(16, 16, generator=again, dtype=torch.float64) / 4 for _ in ("q", "k", "v", "out")
    )
    x = torch.randn(BATCH, LENGTH, 16, generator=again, dtype=torch.float64)
    q, k = ((x @ projection.T).requires_grad_() for projection in (q_proj, k_proj))
    weights = (q @ k.mT).softmax(-1)
    out = weights @ (x @ v_proj.T) @ out_proj.T
    (out * torch.randn(BATCH, LENGTH, 16, generator=again, dtype=torch.float64)).sum().backward()
    assert q.grad is not None and k.grad is not None
    weights = weights.detach()
    assert found.largest == pytest.approx(float(weights.amax(-1).median()))
    assert found.entropy == pytest.approx(float(torch.special.entr(weights).sum(-1).median()))
    assert found.gradient == pytest.approx(float(q.grad.norm(dim=-1).median()))
    assert found.key_gradient == pytest.approx(float(k.grad.norm(dim=-1).median()))


def test_the_division_is_what_a_block_does_by_itself_and_equal_scores_choose_evenly() -> None:
    assert attend(64, None, draw()) == attend(64, 1 / math.sqrt(64), draw()) != attend(64, 1.0, draw())
    assert Attention(64, num_heads=1).scoring.scale == 1 / 8
    found = attend(16, 1e-9, draw())
    assert found.entropy == pytest.approx(math.log(LENGTH)) and found.largest == pytest.approx(1 / LENGTH)


def test_stacks_whose_spread_is_known() -> None:
    spreads, gradients = through([nn.Identity() for _ in range(DEPTH)])
    assert len(set(spreads)) == len(set(gradients)) == 1 and 0.9 < spreads[0] < 1
    assert through([Mean()])[0][0] < 1e-15
    _, gradients = through([Squash() for _ in range(DEPTH)])
    assert gradients[0] < gradients[-1] * 0.5 ** (DEPTH - 2), "a slope of a half halves"
    x = torch.tensor([[[3.0, 0.0], [1.0, 0.0]]], dtype=torch.float64)
    assert spread(x) == pytest.approx((2 / 10) ** 0.5)
    whole, without = through(stack())[0][-1], through(stack(residual=NoResidual, ffn=NoFeedForward))[0][-1]
    assert whole > 0.3 and without < 1e-6


def remembers(limit: int) -> object:
    """The values of the first so many pairs."""

    def model(tokens: Tensor) -> tuple[Tensor, None]:
        said = torch.zeros_like(tokens)
        for row, text in enumerate(tokens.tolist()):
            end = text.index(2)
            known = {text[at]: text[at + 1] for at in range(1, min(end, 2 * limit + 1), 2)}
            said[row, end:] = torch.tensor([known.get(token, 0) for token in text[end:]])
        return one_hot(said, 3 + 2 * SYMBOLS).float(), None

    return model


@pytest.mark.parametrize("limit", [1, 3, PAIRS])
def test_one_that_remembers_so_many_pairs(limit: int) -> None:
    assert recall.share(remembers(limit), PAIRS, 0) == pytest.approx(limit / PAIRS)
    assert recall.share(remembers(limit), 1, 0) == 1.0
    assert recall.share(remembers(limit), PAIRS, 0, of_another=True) < 0.1


def test_the_numbers_of_a_state() -> None:
    width, read = recall.WIDTH, 4 * PAIRS + 1

    def size(mixer: object) -> float:
        mixers = [CausalConv, mixer]
        return state_size(DecoderLM(9, 32, d_model=width, num_layers=2, mixer=mixers, positions=NoPositions))  # type: ignore[arg-type]

    assert size(GRU) == width
    assert read * 2 * width <= size(Attention) <= read * (2 * width + 1) + 1
    one, many = (size(partial(MLSTM, num_heads=heads)) for heads in (1, 16))
    assert one > width * width > many > width * width / 16


def test_exponents_of_powers() -> None:
    for power in (0.0, 1.0, 2.0):
        assert exponent({at: 7 * at**power for at in SHORT}) == pytest.approx(power)
    assert 1 < exponent({at: at**2 + 100 * at for at in SHORT}) < 2


@pytest.mark.parametrize(("rule", "supported", "about", "refuted"), [(QUADRATIC, 2.0, 1.6, 1.49), (FITS, 5, 7, 10.1)])
def test_edges_of_rules(rule: Rule, supported: float, about: float, refuted: float) -> None:
    """Quadratic holds 2 and excludes a half less; two digits of a printed number fit within 5%."""
    found = [rule.judge(Interval(at, at)) for at in (supported, about, refuted)]
    assert found == [Verdict.SUPPORTED, Verdict.ABOUT, Verdict.REFUTED]


def test_what_is_counted_and_what_a_mask_leaves() -> None:
    width = cost.WIDTH
    attention, length = Attention(width), 6 * width
    whole, scores = forward_flops(Block(width, attention), length), attention.flops(length, length)
    assert whole == 2 * scores, "both halves of a block are equal at six widths"
    assert counted(torch.mm, torch.ones(3, 5), torch.ones(5, 7)) == 2 * 3 * 5 * 7
    found = cost.masked()
    assert found["by formula"] == found["by torch"] == 1
    # Of 4 d T (2 d + T) / T FLOPs a token, half of 4 d T are made, and each of T pairs a head has one addition.
    length, heads = 65_536, 12
    share = length / (2 * width + length)
    assert found["a kernel that skips what is masked"] == pytest.approx(1 - share / 2, abs=1e-4)
    assert found["the mask's additions counted"] == pytest.approx(1 + share * heads / (4 * width))


@torch.no_grad()
def test_a_window_does_not_grow() -> None:
    mixer = Attention(64, pattern=lambda: SlidingWindow(16))
    sizes = [sum(entry.nbytes for entry in mixer(torch.ones(1, at, 64))[1].values()) for at in SHORT]
    assert len(set(sizes)) == 1


def test_training_costs_what_the_papers_say() -> None:
    """GPT-3: 3.14e23 without attention's products (Brown et al. 2020, appendix D); the base Transformer: 3.3e18 of its
    hardware, of which it can have done a part only (Vaswani et al. 2017, table 2)."""
    tied, untied = preset("transformer-base", 37_000), preset("transformer-base", 37_000, tie_embeddings="none")
    assert size_of(untied) - size_of(tied) == 2 * 37_000 * 512
    found = printed_and_ours()
    _, years = found["years of GPT-3 at 28 TFLOP/s"]
    assert years * 365.25 * 86400 * 28e12 == pytest.approx(3.14e23, rel=0.05)
    _, days = found["base: 1 day of an A100 at 90%"]
    assert 0.1 * 3.3e18 < days * 86400 * 0.9 * 312e12 < 3.3e18
