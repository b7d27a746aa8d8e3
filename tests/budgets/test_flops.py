"""FLOPs by formula are those that PyTorch counts, and activations counted without memory those that autograd keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from contracts.cases import MIXERS, PAIRS, POSITIONS, MixerCase, PositionCase, fits, pair_name
from contracts.test_completeness import concrete_subclasses
from seqlab.attention import Attention, Bidirectional, LatentAttention
from seqlab.batch import PairBatch
from seqlab.budgets import decoding_flops, forward_flops, training_flops
from seqlab.budgets.activations import Activations, Kept, activations
from seqlab.budgets.flops import _total
from seqlab.mixer import Mixer, State, StateSpec
from seqlab.models import Classifier, DecoderLM, Encoder, EncoderDecoder, MaskedLM, RNNSeq2Seq, Tagger
from seqlab.nn import GELU, Block, MixtureOfExperts
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, CausalConv, Mamba
from seqlab.tasks.large_vocabulary import AT_ONCE

# Of an option that is not used.
pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
VOCAB_SIZE, LONGEST, D_MODEL = 32, 96, 32
LENGTHS = (32, 96)
DEFAULT = [pair for pair in PAIRS if pair[1].name == ("rope" if pair[0].attends else "none")]


def counted(model: nn.Module, length: int) -> int:
    """PyTorch's count for the plain form: attention as two products, and fused cells step by step."""
    tokens = torch.zeros(1, length, dtype=torch.int64)
    plain = sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), plain[0], plain[1]:
        begun = [model.begin(tokens)] if hasattr(model, "begin") else []
        model(tokens, *begun)
    return counter.get_total_flops()


def around(mixer: MixerCase, positions: PositionCase) -> nn.Module:
    """A model of one layer around a mixer."""
    sizes: dict[str, Any] = {"d_model": D_MODEL, "num_layers": 1}
    encoder = partial(Encoder, **sizes, mixer=mixer.factory, positions=positions.factory)
    if not mixer.causal:
        return Tagger(VOCAB_SIZE, 3, LONGEST, encoder=encoder)
    if mixer.memory:
        encoder = partial(Encoder, **sizes, mixer=partial(Attention, pattern=Bidirectional))
        return EncoderDecoder(VOCAB_SIZE, VOCAB_SIZE, LONGEST, encoder=encoder, mixer=mixer.factory, num_layers=1)
    return DecoderLM(VOCAB_SIZE, LONGEST, mixer=mixer.factory, positions=positions.factory, **sizes)


ENCODINGS = [
    (mixer, positions)
    for mixer in MIXERS
    for positions in (case for case in POSITIONS if case.acts_on == "attention scores")
    if mixer.name in ("attention-grouped", "latent", "differential") and fits(mixer, positions)
]


def check_flops(model: nn.Module, lengths: tuple[int, ...] = LENGTHS) -> None:
    for length in lengths:
        assert forward_flops(model.eval(), length) == pytest.approx(counted(model, length), rel=0.02), length


@pytest.mark.parametrize("pair", DEFAULT, ids=pair_name)
def test_every_mixer_in_a_model(pair: tuple[MixerCase, PositionCase]) -> None:
    check_flops(around(*pair))


@pytest.mark.parametrize("pair", ENCODINGS, ids=pair_name)
def test_encodings_of_scores(pair: tuple[MixerCase, PositionCase]) -> None:
    check_flops(around(*pair), LENGTHS[:1])


ATTENTIVE: dict[str, Any] = {"d_model": D_MODEL, "num_layers": 2, "mixer": partial(Attention, pattern=Bidirectional)}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "untied": lambda: DecoderLM(
        VOCAB_SIZE, LONGEST, d_model=D_MODEL, mixer=[GRU, Attention], positions=NoPositions, tie_embeddings=False
    ),
    "encoder-decoder": lambda: EncoderDecoder(
        VOCAB_SIZE, 3 * VOCAB_SIZE, LONGEST, encoder=partial(Encoder, **ATTENTIVE), tie_embeddings="none"
    ),
    "rnn-seq2seq": lambda: RNNSeq2Seq(VOCAB_SIZE, VOCAB_SIZE, LONGEST, d_model=D_MODEL, feed_context=True),
    "classifier": lambda: Classifier(
        VOCAB_SIZE, 50, LONGEST, encoder=partial(Encoder, **ATTENTIVE), pool="class", pooler=True
    ),
    "masked": lambda: MaskedLM(VOCAB_SIZE, LONGEST, encoder=partial(Encoder, **ATTENTIVE)),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model(name: str) -> None:
    check_flops(MODELS[name]())


def test_training_takes_three_forward_passes() -> None:
    """PyTorch counts as many, up to the gradient of the first layer's inputs."""
    model = DecoderLM(VOCAB_SIZE, LONGEST, d_model=D_MODEL, mixer=Attention)
    tokens = torch.zeros(2, 64, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(tokens)[0].sum().backward()
    assert training_flops(model, 64) == pytest.approx(counter.get_total_flops() / (2 * 64), rel=0.02)


@pytest.mark.parametrize("name", ["encoder-decoder", "rnn-seq2seq"])
def test_tokens_of_pairs_are_those_of_both(name: str) -> None:
    """`num_tokens` counts both, and the share of a device's peak depends on it."""
    ones = torch.ones(1, 64, dtype=torch.int64)
    batch = PairBatch(ones, ones.bool(), ones, ones, torch.zeros(1, dtype=torch.int64))
    model = MODELS[name]()
    assert training_flops(model, 64) * int(batch.num_tokens) == 3 * forward_flops(model, 64)


@pytest.mark.parametrize("mixer", [Attention, LatentAttention, GRU, CausalConv])
def test_a_step_of_decoding(mixer: Any) -> None:
    model = DecoderLM(VOCAB_SIZE, LONGEST, d_model=D_MODEL, mixer=mixer, positions=NoPositions).eval()
    tokens = torch.zeros(1, 64, dtype=torch.int64)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        _, state = model(tokens[:, 1:])
        with FlopCounterMode(display=False) as counter:
            model.step(tokens[:, 0], state)
    assert decoding_flops(model, 64) == pytest.approx(counter.get_total_flops(), rel=0.02)


class Own(Mixer):
    """A mixer of somebody's own, which says nothing of what it costs."""

    def __init__(self, d_model: int, layer: int = 0) -> None:
        super().__init__(d_model, layer)
        self.inner = Attention(d_model, layer)
        self.weight = nn.Parameter(torch.randn(d_model, d_model))

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        y, new_state = self.inner(x @ self.weight, state, pad_mask=pad_mask)
        return y, new_state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return self.inner.step(x_t @ self.weight, state)

    def state_spec(self) -> StateSpec:
        return self.inner.state_spec()


class Undone(Own):
    """Runs only where its inputs have values."""

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        return super().forward(x * float(x.sum() > 0), state, pad_mask=pad_mask)


def test_a_mixer_from_elsewhere_is_counted() -> None:
    with torch.device("meta"):
        own, known = (
            DecoderLM(VOCAB_SIZE, LONGEST, d_model=D_MODEL, mixer=mixer, positions=NoPositions)
            for mixer in (Own, Attention)
        )
    for count in (forward_flops, decoding_flops):
        length = 1 if count is decoding_flops else 64
        assert count(own, 64) - count(known, 64) == 2 * 2 * length * D_MODEL**2
    with pytest.raises(ValueError, match="FLOPs of Undone are unknown"):
        forward_flops(DecoderLM(VOCAB_SIZE, LONGEST, d_model=D_MODEL, mixer=Undone, positions=NoPositions), 64)


class Declared(Own):
    def flops(self, new: int, seen: int) -> int:
        return 1000 * new


class Inherited(Attention):
    """Computes more than the mixer that it is derived from."""

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        return super().forward(x @ x.new_zeros(D_MODEL, D_MODEL), state, pad_mask=pad_mask)


def test_a_mixer_from_elsewhere_is_believed_in_what_it_declares_itself() -> None:
    with torch.device("meta"):
        plain, declared, inherited = Attention(D_MODEL), Declared(D_MODEL), Inherited(D_MODEL)
    assert _total(declared, 64, 64) == 1000 * 64 + forward_flops(plain, 64)
    assert _total(inherited, 64, 64) == forward_flops(plain, 64) + 2 * 64 * D_MODEL**2


def test_every_mixer_declares_its_flops() -> None:
    ours = [kind for kind in concrete_subclasses(Mixer) if kind.__module__.startswith("seqlab.")]
    assert len(ours) > 25 and not [kind for kind in ours if kind.flops is Mixer.flops]


LENGTH = 24


def model(layers: int, mixer: Any, ffn: Any = GELU) -> DecoderLM:
    block = partial(Block, ffn=ffn)
    return DecoderLM(64, LENGTH, d_model=D_MODEL, num_layers=layers, mixer=mixer, positions=NoPositions, block=block)


def kept_by(model: DecoderLM, batch: int) -> int:
    """Bytes that autograd keeps of a forward pass, besides the weights."""
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(saved: Tensor) -> Tensor:
        kept[saved.untyped_storage().data_ptr()] = saved.untyped_storage()
        return saved

    tokens = torch.zeros(batch, LENGTH, dtype=torch.int64)
    with saved_tensors_hooks(keep, lambda saved: saved), torch.autocast("cpu", torch.bfloat16):
        model(tokens, features=True)
    own = {weight.data_ptr() for weight in model.parameters()}
    return sum(storage.nbytes() for place, storage in kept.items() if place not in own)


@pytest.mark.parametrize("ffn", [GELU, MixtureOfExperts])
def test_what_autograd_keeps(ffn: Any) -> None:
    """Within 3%: the embedding, and what leaves the last block, are by formula."""
    mixers = [GRU, Attention, Mamba]
    found = activations(lambda: model(3, mixers, ffn), LENGTH)
    assert found.kept.fixed + 16 * found.kept.each == pytest.approx(kept_by(model(3, mixers, ffn), 16), rel=0.03)


def test_what_is_kept_to_compute_again() -> None:
    """Activations of one block, once, and the inputs of each block and of the last norm, in float32."""
    one, four = activations(lambda: model(1, Attention), LENGTH), activations(lambda: model(4, Attention), LENGTH)
    block = (four.kept.each - one.kept.each) // 3
    assert four.forgotten.each == block + (4 * D_MODEL * LENGTH) * (4 + 2)
    assert four.forgotten.fixed == one.kept.fixed == four.kept.fixed // 4 > 0


def test_what_is_not_known() -> None:
    with pytest.raises(
        ValueError, match="the activations of Undone are unknown: it cannot run on tensors without memory"
    ):
        activations(lambda: model(1, Undone), LENGTH)
    with pytest.raises(ValueError, match="the activations of Linear are unknown: it has no vocabulary"):
        activations(lambda: torch.nn.Linear(1, 1), LENGTH)


def test_the_largest_batch() -> None:
    """Logits never exceed the number that a task computes at once."""
    few = Activations(Kept(1000, 100), Kept(100, 10), 10)
    assert few.largest_batch(1000 + 220 * 7, forget=False) == 7
    assert few.largest_batch(100 + 130 * 7 - 1, forget=True) == 6
    assert few.largest_batch(0, forget=False) == 0
    many = Activations(Kept(0, 100), Kept(0, 10), AT_ONCE // 2)
    assert many.largest_batch(12 * AT_ONCE + 100 * 9, forget=False) == 9
    assert many.largest_batch(6 * AT_ONCE + 100, forget=False) == 1
    assert Activations(Kept(0, 100), Kept(0, 10), 2 * AT_ONCE).largest_batch(12 * AT_ONCE + 100, forget=False) == 1
