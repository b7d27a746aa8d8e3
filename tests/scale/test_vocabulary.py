"""The loss where a vocabulary is divided over ranks: one process's, of no more logits than each rank's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from peak import peak
from scale.fits import whole_weight
from scale.forked import forked
from seqlab.attention import Attention, Bidirectional
from seqlab.batch import IGNORE
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint
from seqlab.models import DecoderLM, Encoder, MaskedLM
from seqlab.nn.embedding import TypedEmbedding
from seqlab.parallel.cut import cut
from seqlab.parallel.fully_sharded import shard_fully
from seqlab.parallel.vocabulary import divided_nats
from seqlab.positions import NoPositions
from seqlab.tasks import large_vocabulary
from seqlab.tasks.large_vocabulary import Logits

HEADS = partial(Attention, num_heads=2)
ENCODER = partial(Encoder, d_model=8, num_layers=1, mixer=partial(HEADS, pattern=Bidirectional))
MODELS: dict[str, Callable[[int], torch.nn.Module]] = {
    "tied": lambda vocab_size: DecoderLM(vocab_size, 8, d_model=8, num_layers=1, mixer=HEADS),
    "untied": lambda vocab_size: DecoderLM(vocab_size, 8, d_model=8, num_layers=1, mixer=HEADS, tie_embeddings=False),
    "masked": lambda vocab_size: MaskedLM(vocab_size - 1, 8, encoder=ENCODER),
    "of two texts": lambda vocab_size: MaskedLM(vocab_size - 1, 8, encoder=partial(ENCODER, embed=TypedEmbedding)),
}


def over_ranks(model: torch.nn.Module) -> None:
    """Cut over 2, and where there are 4 its weights sharded too."""
    readers = dist.get_world_size() // 2
    mesh = init_device_mesh("cpu", (readers, 2), mesh_dim_names=("data", "tensor"))
    cut(model, mesh["tensor"], sharded=readers if readers > 1 else None)
    if readers > 1:
        shard_fully(model, mesh["data"], "64-true")


@pytest.mark.parametrize(("ranks", "vocab_size"), [(2, 12), (2, 13), (4, 9)])
def test_nats_and_gradients_are_those_of_whole_logits(ranks: int, vocab_size: int) -> None:
    """A vocabulary of 9 leaves the fourth rank empty. One of 4 rows has no target, and one has logits of 10,000."""
    torch.manual_seed(0)
    logits = torch.randn(4, 3, vocab_size, dtype=torch.float64)
    logits[1] *= 10_000
    targets = torch.randint(vocab_size, (4, 3)).index_fill_(0, torch.tensor(2), IGNORE)

    def found(nats_of: Callable[..., Tensor], logits: Tensor, *options: float) -> list[Tensor]:
        logits = logits.detach().requires_grad_()
        nats = nats_of(logits, *options)
        (nats * torch.arange(12.0).view(4, 3)).sum().backward()
        assert logits.grad is not None
        return [nats.detach(), whole_weight(logits.grad)]

    def alone(logits: Tensor, smoothing: float, z_loss: float) -> Tensor:
        nats = F.cross_entropy(logits.movedim(-1, 1), targets, reduction="none", label_smoothing=smoothing)
        return nats + z_loss * (logits.logsumexp(-1).square() * (targets != IGNORE))

    def compare() -> None:
        mesh = init_device_mesh("cpu", (ranks,))
        for options in ((0.0, 0.0), (0.1, 0.0), (0.1, 0.01)):
            divided = distribute_tensor(logits, mesh, [Shard(2)])
            ours = found(lambda own, *options: divided_nats(own, targets, *options), divided, *options)
            torch.testing.assert_close(ours, found(alone, logits, *options), rtol=1e-12, atol=1e-12)

    assert forked(ranks, compare) == [0] * ranks


def step(model: torch.nn.Module, tokens: Tensor, smoothing: float = 0.1) -> list[Tensor]:
    """The loss of a batch and the gradients of all weights."""
    targets = tokens.roll(1, 1).masked_fill(tokens == 3, IGNORE)

    def said(**what: bool) -> Tensor:
        made = model(tokens, **what)
        return made[0] if isinstance(made, tuple) else made

    nats, _ = Logits(model, said).summed_nats(targets, smoothing)
    nats.backward()
    return [nats.detach(), *(whole_weight(weight.grad) for weight in model.parameters() if weight.grad is not None)]


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view:UserWarning")
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("at_once", "gathered"), [(large_vocabulary.AT_ONCE, False), (40, False), (40, True)])
def test_a_step_of_a_cut_model_is_that_of_one_process(
    at_once: int, gathered: bool, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, all rows at once and 3 at a time; of divided logits, and of gathered ones, as distillation needs."""
    monkeypatch.setattr(large_vocabulary, "AT_ONCE", at_once)
    tokens = torch.randint(12, (2, 8), generator=torch.Generator().manual_seed(0))

    def compare() -> None:
        for make in MODELS.values():
            model = make(13).double()
            alone = step(model, tokens)
            model.zero_grad()
            over_ranks(model)
            if gathered:
                del model.divided_output
            assert len(alone) > 10 and sum(hasattr(weight, "placements") for weight in model.parameters()) > 6
            torch.testing.assert_close(step(model, tokens), alone, rtol=1e-12, atol=1e-12)

    assert forked(ranks, compare) == [0] * ranks


@pytest.mark.slow
def test_no_rank_has_more_logits_than_its_own() -> None:
    """50,000 tokens at 256 places: 51 MB of logits."""
    model = DecoderLM(50_000, 256, d_model=8, num_layers=1, mixer=HEADS)
    tokens = torch.randint(50_000, (1, 256))
    whole = peak(lambda: step(model, tokens, 0.0))

    def compare() -> None:
        over_ranks(model)
        assert peak(lambda: step(model, tokens, 0.0)) < 0.45 * whole

    assert whole > 150e6 and forked(2, compare) == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("vocab_size", "width", "divided"), [(65, 8, True), (66, 8, True), (65, 6, False)])
def test_ranks_that_share_layers_and_weights_write_any_vocabulary(
    tmp_path: Path, vocab_size: int, width: int, divided: bool
) -> None:
    """65 is odd: by rows FSDP2 over 4 ranks would not hold the parts of 33 and 32 tokens where their DTensors say."""
    torch.manual_seed(0)
    model = DecoderLM(vocab_size, 8, mixer=HEADS, positions=NoPositions, d_model=width, num_layers=1)
    tokens, weights = torch.arange(8)[None], {name: value.clone() for name, value in model.state_dict().items()}
    logits = model(tokens)[0].detach()

    def spread_and_save() -> None:
        mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("data", "tensor"))
        cut(model, mesh["tensor"], sharded=4)
        assert isinstance(model.embedding.weight, DTensor) == divided
        shard_fully(model, mesh["data"], "32-true")
        with torch.no_grad():
            assert torch.allclose(model(tokens)[0], logits, atol=1e-5)
        AtomicCheckpointIO().save_shards({"state_dict": model.state_dict()}, tmp_path / "last.ckpt")

    assert forked(8, spread_and_save) == [0] * 8
    found = read_checkpoint(tmp_path / "last.ckpt")["state_dict"]
    assert found.keys() == weights.keys() and all(torch.equal(found[name], weights[name]) for name in weights)
