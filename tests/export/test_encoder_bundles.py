"""Bundles of encoders, and of decoders that read a source: proven, and refused where they are not the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from contracts.subjects import randomized
from export.toys import TOKENIZER
from seqlab import attention as att
from seqlab.attention import Attention
from seqlab.decoding import TextCodec
from seqlab.decoding.text_model import Translator
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import BagOfWords, Classifier, Encoder, EncoderDecoder, MaskedLM, RNNSeq2Seq, Tagger
from seqlab.positions import Learned, NoPositions, Sinusoidal
from seqlab.recurrence import GRU, LSTM, RNN
from seqlab_data.tokenizers import CharTokenizer
from seqlab_export.bundle import ParityError, export_bundle
from seqlab_export.capture import graph_forms
from seqlab_export.capture.graph_forms import longest_input
from seqlab_export.runner.bundle_text_model import load_codec
from seqlab_export.runner.graph_runner import Bundle, BundleRunner
from seqlab_export.runner.report import Report
from tolerances import TOLERANCE

V, C, D_MODEL, SEQ_LEN = TOKENIZER.vocab_size, 3, 8, 40
SOURCE = CharTokenizer("uvwxyz ")

# torch's exporter uses what its own version deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def encoder(mixer: Any = None, positions: Any = Sinusoidal, **options: Any) -> Any:
    mixer = mixer or partial(Attention, num_heads=2, pattern=att.Bidirectional)
    return partial(Encoder, d_model=D_MODEL, num_layers=1, mixer=mixer, positions=positions, **options)


def to_target(mixer: Any, reader: Any = None, positions: Any = NoPositions) -> Callable[[], nn.Module]:
    reader = reader or encoder(partial(GRU, bidirectional=True), NoPositions)
    return lambda: EncoderDecoder(V, V, SEQ_LEN, encoder=reader, num_layers=1, mixer=mixer, positions=positions)


def tagger(mixer: Any) -> Tagger:
    return Tagger(V, C, SEQ_LEN, encoder=encoder(partial(mixer, bidirectional=True), NoPositions))


slow = pytest.mark.slow
OF_TEXT: dict[str, Callable[[], nn.Module]] = {
    "bag of words": lambda: BagOfWords(V, C, SEQ_LEN, d_model=D_MODEL),
    "tagger": lambda: tagger(GRU),
    "lstm tagger": lambda: tagger(partial(LSTM, num_layers=2)),
    "rnn tagger": lambda: tagger(partial(RNN, num_layers=2, nonlinearity="relu")),
    "classifier": lambda: Classifier(V, C, SEQ_LEN, encoder=encoder(), pool="last"),
    "masked": lambda: MaskedLM(V, SEQ_LEN, encoder=encoder(positions=Learned)),
}
WRITING = {
    "rnn": lambda: RNNSeq2Seq(V, V, SEQ_LEN, d_model=D_MODEL, feed_context=True),
    "lstm": lambda: RNNSeq2Seq(V, V, SEQ_LEN, d_model=D_MODEL, recurrence=LSTM),
    "transformer": to_target(partial(Attention, num_heads=2), encoder(), Sinusoidal),
    "additive": to_target(att.AdditiveAttention),
    "local and fed": to_target(partial(att.MultiplicativeAttention, score=att.Additive, window=2, input_feeding=True)),
    "linear": to_target(att.GatedLinearAttention, encoder(att.GatedLinearAttention, NoPositions)),
}


SCANS = {"transformer": 0, "additive": 1, "local and fed": 1}
"""Loops over time in the graph of whole sequences."""


def exported(model: nn.Module, folder: Path, **options: Any) -> Report:
    labels = ["x", "y", "z"] if isinstance(model, (BagOfWords, Classifier, Tagger)) else []
    defaults: dict[str, Any] = {"tokenizer": TOKENIZER, "labels": labels, "seq_len": SEQ_LEN}
    return export_bundle(model, out=folder, **defaults | options)


DECLARED = {"files", "statements", "texts", "signature"}


def kinds(report: Report) -> set[str]:
    """Small ones have no file of weights."""
    return {check.kind for check in report.checks if check.kind != "weights"}


@slow
@pytest.mark.parametrize("name", OF_TEXT)
def test_an_encoder_of_text_says_what_its_model_says(name: str, tmp_path: Path) -> None:
    model = randomized(OF_TEXT[name]()).float().eval()
    report = exported(model, tmp_path / "bundle")
    assert report.ok and kinds(report) == {*DECLARED, "encoder"}
    bundle = Bundle(tmp_path / "bundle")
    tokens = torch.randint(3, V, (4, 13))
    pad_mask = torch.arange(13) < torch.tensor([[13], [1], [7], [12]])
    expected = model(tokens, pad_mask=pad_mask).detach().numpy()
    found = bundle.encode(tokens.numpy(), pad_mask.numpy())["logits"]
    real = pad_mask.numpy() if expected.ndim > 2 else ...
    np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=TOLERANCE[torch.float32])
    text = torch.tensor([TOKENIZER.encode("fed a cab")])
    chances = model(text).softmax(-1)[0].detach().numpy()
    np.testing.assert_allclose(bundle.probabilities(text[0].tolist()), chances, rtol=0, atol=TOLERANCE[torch.float32])
    with pytest.raises(ValueError, match="is the bundle of an encoder, which writes nothing"):
        BundleRunner(tmp_path / "bundle")
    if bundle.manifest.max_source_len is not None:
        with pytest.raises(ValueError, match="an input has 41 tokens, this bundle reads at most 40"):
            bundle.probabilities([4] * 41)


@slow
@pytest.mark.parametrize("name", WRITING)
def test_a_bundle_writes_of_a_source_what_its_model_writes(name: str, tmp_path: Path) -> None:
    model = randomized(WRITING[name]()).float().eval()
    report = exported(model, tmp_path / "bundle", source_tokenizer=SOURCE)
    assert report.ok and kinds(report) == {*DECLARED, "encoder", "prefill", "chunks", "step", "long", "greedy"}
    for file, scans in (("model.onnx", SCANS.get(name)), ("step.onnx", 0)):
        nodes = [node.op_type for node in onnx.load(tmp_path / "bundle" / file).graph.node]
        assert "Loop" not in nodes and scans in (None, nodes.count("Scan"))
    runner, codec = BundleRunner(tmp_path / "bundle"), load_codec(tmp_path / "bundle")
    assert codec.source_tokenizer.to_dict() == SOURCE.to_dict()  # type: ignore[attr-defined]
    begins = (partial(TorchDecoder.begin, model), runner.begin)
    texts, nothing = ["u", "zyx wvu", "vvvvv uuuuu"], [[SOURCE.eos_id]]
    of_source = TextCodec("sources", TOKENIZER, SOURCE)
    expected, found = (Translator("a model", of_source, begin, 12) for begin in begins)
    for beams in (1, 3):
        assert found.translate(texts, beams=beams) == expected.translate(texts, beams=beams)
    assert found.run(nothing) == expected.run(nothing)
    with pytest.raises(ValueError, match="writes what a source says"):
        runner.prefill(np.array([[TOKENIZER.bos_id]]), np.array([[True]]))


@slow
@pytest.mark.parametrize("target", ["portable", "ort"])
def test_the_beams_of_a_source_read_one_row(target: Any, tmp_path: Path) -> None:
    """Matches PyTorch, where each row has its own source: once repeated, reordered, repeated unevenly, left alone."""
    cross = partial(att.CrossAttention, num_heads=4, num_kv_heads=2)
    writer = partial(EncoderDecoder, mixer=partial(Attention, num_heads=1), cross=cross, positions=Sinusoidal)
    model = randomized(writer(V, V, SEQ_LEN, encoder=encoder(), num_layers=2)).float().eval()
    exported(model, tmp_path / "bundle", source_tokenizer=SOURCE, target=target)
    runner = BundleRunner(tmp_path / "bundle")
    of_source = [entry.name for entry in runner.manifest.state if entry.dims[0] == "N"]
    assert of_source == [f"{layer}_memory_{part}" for layer in (1, 3) for part in ("k", "v", "mask")]
    sources, column = np.array([[3, 4, 5], [6, 7, 0]]), np.full((2, 1), TOKENIZER.bos_id)
    decoders: list[Any] = [TorchDecoder.begin(model, sources, sources > 0), runner.begin(sources, sources > 0)]
    states = [decoder.prefill(column, column > 0)[1] for decoder in decoders]
    for rows, num_sources in (([0, 0, 0, 1, 1, 1], 2), ([2, 0, 1, 5, 5, 3], 2), ([0, 1, 4], 3), ([2], 1)):
        tokens = np.arange(3, 3 + len(rows))
        steps = [
            decoder.step(tokens, decoder.select(state, np.array(rows)))
            for decoder, state in zip(decoders, states, strict=True)
        ]
        (expected, _), (found, state) = steps
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[torch.float32])
        assert {len(state[f"state_{name}"]) for name in of_source} == {num_sources}
        states = [state for _, state in steps]


def test_an_rnn_reads_sources_of_any_length() -> None:
    assert longest_input(WRITING["rnn"]()) is None


@slow
def test_one_tokenizer_for_both_sides_is_stored_once(tmp_path: Path) -> None:
    exported(randomized(WRITING["rnn"]()).float(), tmp_path / "bundle", source_tokenizer=CharTokenizer("abcdef "))
    assert not (tmp_path / "bundle" / "source_tokenizer").exists()
    codec = load_codec(tmp_path / "bundle")
    assert codec.source_tokenizer is codec.tokenizer


class NoMask(graph_forms.EncoderForm):
    def forward(self, inputs: Tensor, pad_mask: Tensor) -> Tensor:
        return super().forward(inputs, pad_mask | True)


class OneOff(graph_forms.BeginForm):
    def forward(self, source: Tensor, source_mask: Tensor) -> dict[str, Tensor]:
        state = super().forward(source, source_mask)
        return state | {"h": state["h"].roll(1, dims=-1)}


@pytest.mark.parametrize(
    ("defect", "form", "model", "where"),
    [
        (NoMask, "EncoderForm", OF_TEXT["bag of words"], {"encoder"}),
        pytest.param(OneOff, "BeginForm", WRITING["rnn"], {"encoder", "prefill", "chunks", "step", "long"}, marks=slow),
    ],
)
def test_a_graph_that_is_not_the_model_is_not_written(
    defect: Any, form: str, model: Any, where: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference comes from the correct form: only the graph has the defect."""
    true = graph_forms.forms_of
    monkeypatch.setattr("seqlab_export.capture.plan.forms_of", lambda some, *_: true(some) | {"encoder": defect(some)})
    with pytest.raises(ParityError) as error:
        exported(randomized(model()).float(), tmp_path / "bundle")
    assert {check.kind for check in error.value.report.failures} == where
    assert not list(tmp_path.iterdir())
