"""`seqlab estimate` against sums by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Seqlab

MISSPELT = (
    "{data: {class_path: TextDataModule, seq_len: 8}, "
    "model: {class_path: LanguageModeling, model: {class_path: DecoderLM, mixer: GRUU}}}"
)


def test_gpt2_by_hand(quick: Seqlab) -> None:
    """Every token passes 12 layers of 7,077,888 weights in matrices, the output layer of 50,257 x 768, and attention to
    1,024 places, two products of 768 in each layer."""
    flops = 6 * (12 * 7_077_888 + 50_257 * 768 + 12 * 2 * 1024 * 768)
    args = ["--config=presets/gpt2", "--device=H200", "--devices=8", "--mfu=0.5", "--tokens=1e10", "--price=2"]
    said = quick("estimate", *args).stdout.splitlines()
    days = flops * 1e10 / (8 * 989e12 * 0.5) / 86400
    assert said[0] == f"124,439,808 parameters, {flops:.4g} FLOPs of training a token"
    assert said[1] == f"{days:.3g} days for 1e+10 tokens on 8 H200"
    assert said[2] == f"cost {days * 24 * 8 * 2:,.0f}"
    # The matrices in bfloat16: those of one layer where each computes again.
    kept, again = said[3].removeprefix("activations of 1,024 tokens: ").split("; with --checkpoint_activations ")
    assert kept.startswith(f"{2 * 12 * 7_077_888 / 1e9:.3g} GB and 0.3")
    assert again.startswith(f"{2 * 7_077_888 / 1e9:.3g} GB and 0.0")
    assert said[4].startswith("ddp: 2.0 GB of 141 a device, fits, with 3")
    assert said[5].startswith("fsdp2: 0.2 GB")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--device=H300", "--device H300 is not known; accepted: H100"),
        ("--mfu=2", "--mfu in 0 to 1"),
        ("--price=-1", "--price must be at least 0, got -1"),
        (f"--config={MISSPELT}", "model.model.mixer: there is no class GRUU; did you mean GRU?"),
    ],
)
def test_what_makes_no_sense(given: str, said: str, quick: Seqlab) -> None:
    assert said in quick("estimate", "--config=presets/gpt2", "--tokens=1e9", given, code=2).stderr


@pytest.mark.parametrize("text", ["model: [", "- 1", "data: x", "model: 3\ndata: {class_path: x, seq_len: 8}"])
def test_what_is_no_config(text: str, tmp_path: Path, quick: Seqlab) -> None:
    (config := tmp_path / "mine.yaml").write_text(text)
    assert f"seqlab: --config {config} " in quick("estimate", f"--config={config}", "--tokens=1e9", code=2).stderr
    if "data" not in text:
        quick("fit", f"--config={config}", "--help", code=2)
