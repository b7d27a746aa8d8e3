"""Probes find what there is, and a fit with them is the one without; the noise scale of known gradients."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from callbacks.tiny_fit import text_data, vector
from seqlab.attention import Attention, Bidirectional
from seqlab.batch import LabelledBatch
from seqlab.callbacks.noise_scale import GradientNoiseScale
from seqlab.models import Classifier, DecoderLM, Encoder, EncoderDecoder, MaskedLM, RNNSeq2Seq
from seqlab.models.classifier import BagOfWords
from seqlab.parallel import SpreadStrategy
from seqlab.positions import NoPositions
from seqlab.probes.gradient_probe import GradientProbe
from seqlab.probes.probe import Probe
from seqlab.probes.state_probe import StateProbe
from seqlab.recurrence import GRU, LSTM, RNN, Mamba
from seqlab.tasks import Classification, LanguageModeling, MaskedLanguageModeling, Regression, Translation
from seqlab.tasks.task import Task
from seqlab_data import ParallelTextDataModule
from seqlab_data.adding import AddingDataModule
from seqlab_data.tokenizers import WordTokenizer
from trainers import loader, quiet_trainer

HYBRID: list[Any] = [GRU, partial(Attention, num_heads=2), Mamba]
ADDING: dict[str, Any] = {"train_lengths": (5, 12), "test_lengths": (12, 12), "num_train": 64, "num_eval": 64}
BOTH_WAYS = partial(Attention, num_heads=2, pattern=Bidirectional)


def language_model(folder: Path) -> tuple[Task, L.LightningDataModule]:
    data = text_data(folder)
    model = partial(DecoderLM, d_model=8, num_layers=3, mixer=HYBRID, positions=NoPositions, dropout=0.2)
    return LanguageModeling(data.vocab_size, data.seq_len, model=model), data


class Draws(nn.Linear):
    """Draws in evaluation too, as one may."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0 * torch.rand(1)


def regressor(folder: Path) -> tuple[Task, L.LightningDataModule]:
    encoder = partial(Encoder, d_model=8, num_layers=1, mixer=LSTM, positions=NoPositions, embed=Draws, dropout=0.2)
    return Regression(2, 12, model=partial(Classifier, encoder=encoder, pool="last")), AddingDataModule(
        **ADDING, batch_size=8
    )


class Seen(Callback):
    """Weights, gradients and torch's generator before each micro-batch."""

    def __init__(self) -> None:
        self.seen: list[list[Tensor]] = []

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        gradients = [weight.grad for weight in pl_module.parameters() if weight.grad is not None]
        self.seen.append([torch.get_rng_state(), vector(pl_module), *map(torch.clone, gradients)])


@pytest.mark.parametrize("make", [language_model, regressor])
def test_a_fit_is_the_same_with_and_without(make: Any, tmp_path: Path) -> None:
    """Validations within an accumulation, which has gradients then; dropout draws in training."""
    without, with_them = Seen(), Seen()
    options = {"max_steps": 6, "accumulate_grad_batches": 2, "val_check_interval": 1, "limit_val_batches": 2}
    for callbacks in ([without], [with_them, GradientProbe(), StateProbe(rows=3)]):
        torch.manual_seed(3)
        task, data = make(tmp_path)
        trainer = quiet_trainer(tmp_path, callbacks=callbacks, num_sanity_val_steps=0, **options)
        trainer.fit(task, datamodule=data)
        found = {name for name in trainer.callback_metrics if name.startswith(("gradient_back", "state"))}
        assert bool(found) == (len(callbacks) > 1)
    assert len(without.seen) > 10
    for one, other in zip(without.seen, with_them.seen, strict=True):
        assert len(one) == len(other) and all(map(torch.equal, one, other))


def validated(task: Task, *probes: Probe, batch: Any = None, **data: Any) -> dict[str, float]:
    """Probes' metrics of one batch, given or from a data module."""
    trainer = quiet_trainer(Path(), limit_val_batches=1, callbacks=list(probes))
    found = trainer.validate(task, loader([batch]) if batch is not None else None, verbose=False, **data)[0]
    return {name: value for name, value in found.items() if name.startswith(("gradient_back", "state"))}


def classifier(**options: Any) -> Classification:
    encoder = partial(Encoder, d_model=8, num_layers=1, positions=NoPositions, **options)
    return Classification(2, 9, vocab_size=7, model=partial(Classifier, encoder=encoder))


def labelled(rows: int = 4, pads: int = 3) -> LabelledBatch:
    mask = torch.arange(9) < torch.tensor([9] + [9 - pads] * (rows - 1))[:, None]
    return LabelledBatch(torch.randint(7, (rows, 9)), mask, torch.zeros(rows, dtype=torch.int64))


def test_gradients_of_a_classifier_by_autograd() -> None:
    """Only real tokens: of rows of six, six inputs; the ratio of the norms over rows."""
    task, batch = classifier(mixer=GRU).eval(), labelled()
    # Each row many times over: the random sums, which differ by row, come close to all of the outputs' numbers.
    often = LabelledBatch(*(of.repeat_interleave(200, dim=0) for of in batch[:3]))
    found = validated(task, GradientProbe(rows=800), batch=often)
    assert set(found) == {f"gradient_back/{k}" for k in (1, 2, 4, 8)}
    encoder: Any = task.model.encoder
    x = encoder.embed(batch.inputs).detach().requires_grad_()
    y, _ = encoder.stack(x, pad_mask=batch.pad_mask)
    # The whole Jacobian of each row's last output.
    squares = {k: [0.0, 0.0] for k in (1, 2, 4, 8)}
    for row, last in enumerate(batch.pad_mask.sum(1).tolist()):
        jacobian = torch.stack([torch.autograd.grad(y[row, last - 1, d], x, retain_graph=True)[0] for d in range(8)])
        for k in squares:
            if k < last:
                squares[k][0] += float(jacobian[:, row, last - 1 - k].square().sum())
                squares[k][1] += float(jacobian[:, row, last - 1].square().sum())
    for k, (there, own) in squares.items():
        assert found[f"gradient_back/{k}"] == pytest.approx(math.sqrt(there / own), rel=0.1)
    few, alone = validated(task, GradientProbe(rows=3), batch=batch), LabelledBatch(*(of[:3] for of in batch[:3]))
    assert few == validated(task, GradientProbe(), batch=alone) != validated(task, GradientProbe(), batch=batch)


def test_a_planted_forgetter_is_told_from_a_keeper() -> None:
    found = {}
    for bias in (-20.0, 20.0):
        task = classifier(mixer=partial(LSTM, forget_bias=bias))
        found[bias] = validated(task, GradientProbe(), StateProbe(), batch=labelled())
    assert found[-20.0]["gradient_back/8"] < 1e-4 < 1e-2 < found[20.0]["gradient_back/8"]
    assert found[20.0]["state/encoder/0/c_rms"] > 1.5 * found[-20.0]["state/encoder/0/c_rms"]
    assert all(of["state/encoder/0/gates_saturated"] == pytest.approx(1 / 3) for of in found.values())


def test_states_are_the_mixers_own(tmp_path: Path) -> None:
    task, data = language_model(tmp_path)
    data.setup("validate")
    batch = next(iter(data.val_dataloader()))
    found = validated(task, StateProbe(), datamodule=data)
    with torch.no_grad():
        _, state = task.eval().model(batch.tokens)
    kinds = {"state/0/gates_saturated", "state/0/tanhs_saturated"}
    assert set(found) == kinds | {"state/0/h_rms", "state/2/h_rms"}, "neither keys nor Mamba's convolution"
    assert found["state/0/h_rms"] == pytest.approx(float(state["0_h"].square().mean().sqrt()))


def test_both_ways_there_are_gates_and_no_state() -> None:
    found = validated(classifier(mixer=partial(RNN, bidirectional=True)), StateProbe(), batch=labelled())
    assert set(found) == {"state/encoder/0/tanhs_saturated"}


def test_of_what_writes_the_decoder_is_probed(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a b c a b c a b c\tx y\nb\tz z z z\n")
    words: dict[str, Any] = {"source_tokenizer": WordTokenizer, "target_tokenizer": WordTokenizer, "max_len": 12}
    data = ParallelTextDataModule(str(pairs), val=str(pairs), **words)
    encoder = partial(Encoder, d_model=8, num_layers=1, mixer=partial(GRU, bidirectional=True), positions=NoPositions)
    build = partial(EncoderDecoder, encoder=encoder, num_layers=1, mixer=GRU, positions=NoPositions)
    translation = partial(Translation, data.vocab_size, data.target_vocab_size, data.seq_len)
    found = validated(translation(model=build), GradientProbe(), StateProbe(), datamodule=data)
    assert {"gradient_back/4", "state/0/h_rms", "state/encoder/0/gates_saturated"} <= set(found)
    assert "gradient_back/8" not in found, "as many as what is written has"
    found = validated(translation(model=partial(RNNSeq2Seq, d_model=8)), StateProbe(), datamodule=data)
    assert {"state/encoder/h_rms", "state/decoder/h_rms"} <= set(found)


def test_masks_are_probed_both_ways(tmp_path: Path) -> None:
    text, model = text_data(tmp_path), partial(MaskedLM, encoder=partial(Encoder, d_model=8, mixer=BOTH_WAYS))
    masked = MaskedLanguageModeling(text.vocab_size, text.seq_len, model=model)
    assert set(validated(masked, GradientProbe(), datamodule=text)) == {f"gradient_back/{k}" for k in (1, 2, 4)}


def test_what_cannot_be_probed_is_refused() -> None:
    with pytest.raises(
        ValueError, match="StateProbe needs a layer with a recurrent state, but this Classifier has none"
    ):
        validated(classifier(mixer=BOTH_WAYS), StateProbe(), batch=labelled())
    bag = Classification(2, 9, vocab_size=7, model=BagOfWords)
    with pytest.raises(ValueError, match="BagOfWords has no Stack of blocks"):
        validated(bag, GradientProbe(), batch=labelled())
    spread: Any = SimpleNamespace(strategy=SpreadStrategy("fsdp2"))
    with pytest.raises(ValueError, match=r"--trainer\.strategy fsdp2 shards it"):
        StateProbe().setup(spread, bag, "fit")


MEAN, DEVIATION, WIDTH, ROWS = 0.5, 2.0, 1000, 4


class Known(L.LightningModule):
    """The gradient of a row is the row, whatever the weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(WIDTH))
        self.num_tokens = torch.tensor(ROWS)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return (batch @ self.weights).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fitted(folder: Path, batches: int, accumulated: int) -> L.Trainer:
    options: dict[str, Any] = {"max_epochs": 1, "accumulate_grad_batches": accumulated, "limit_val_batches": 0}
    trainer = quiet_trainer(folder, callbacks=[GradientNoiseScale()], **options)
    drawn = torch.randn(batches, ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    trainer.fit(Known(), loader(MEAN + DEVIATION * drawn))
    return trainer


def test_the_noise_scale_is_the_trace_over_the_squared_norm(tmp_path: Path) -> None:
    """Rows, each one token: DEVIATION^2 WIDTH / (MEAN^2 WIDTH) = 16. An epoch's last step has 1 of 8 micro-batches."""
    found = fitted(tmp_path, batches=801, accumulated=8).callback_metrics["train/noise_scale"].item()
    assert found == pytest.approx(16, rel=0.05)


def test_a_noise_scale_of_one_micro_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"give --trainer\.accumulate_grad_batches of at least 2"):
        fitted(tmp_path, batches=1, accumulated=1)
