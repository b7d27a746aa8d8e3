"""WebGPU in Chromium, which SwiftShader computes on the CPU: its values are within the budgets of every runtime."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.planted import edit_graph, with_output_times
from export.toys import Export
from runtime.conftest import Bundle, Copy, _exported
from seqlab.attention import Attention, GatedDeltaNet
from seqlab.positions import Learned, NoPositions
from seqlab.recurrence import Mamba
from seqlab_export.capture import plan
from seqlab_export.reports import parity
from seqlab_export.reports.parity import Cell, parity_of_bundle
from web.programs import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]
Measure = Callable[[Path], tuple[Cell, Cell]]


def _not_found() -> str:
    raise FileNotFoundError("seqlab-run is left out here")


@pytest.fixture(name="measure")
def _measure(monkeypatch: pytest.MonkeyPatch) -> Measure:
    """The cells of a bundle on wasm and on WebGPU."""
    build("tools/webgpu_page.ts")
    monkeypatch.setattr(parity, "WEB_PROOF", build("tools/verify.ts"))
    monkeypatch.setattr(parity, "WEBGPU_PROOF", build("tools/webgpu.ts"))
    monkeypatch.setattr(parity, "find_program", _not_found)

    def measure(folder: Path) -> tuple[Cell, Cell]:
        *_, wasm, webgpu = parity_of_bundle("a name", folder, None)
        assert (wasm.runtime, webgpu.runtime) == ("onnxruntime-web, wasm", "onnxruntime-web, WebGPU")
        return wasm, webgpu

    return measure


def check(wasm: Cell, webgpu: Cell) -> None:
    """Both are within their budgets, and neither is the other."""
    assert wasm.ok and webgpu.ok, webgpu
    assert webgpu.error and webgpu.limit and webgpu.error <= webgpu.limit
    assert webgpu.greedy == "the same" and webgpu.top1 == 1
    assert (webgpu.error, webgpu.kl) != (wasm.error, wasm.kl)


@pytest.mark.parametrize(
    ("mixer", "positions"),
    [
        pytest.param(Attention, Learned, id="keys and values"),
        pytest.param(GatedDeltaNet, NoPositions, id="a matrix"),
        pytest.param(Mamba, NoPositions, id="a convolution's window"),
    ],
)
def test_a_state_of_each_kind(
    mixer: Any, positions: Any, export: Export, measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MOST_WEIGHTS", 0)  # a reduced proof, which takes seconds
    check(*measure(export(mixer, positions, num_layers=1).folder))


def test_a_hidden_state(bundle: Bundle, measure: Measure) -> None:
    check(*measure(bundle("reduced gru")))


def test_what_a_decoder_reads_of_a_source(tmp_path: Path, measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MOST_WEIGHTS", 0)
    check(*measure(_exported("attentive translator", tmp_path / "bundle")))


@pytest.mark.parametrize(("file", "output"), [("model.onnx", "logits"), ("step.onnx", "new_state_0_h")])
def test_a_wrong_graph_is_found(file: str, output: str, copy: Copy, measure: Measure) -> None:
    folder = copy("reduced gru")
    edit_graph(folder, file, with_output_times(1.0001, output))
    wasm, webgpu = measure(folder)
    assert wasm.ok is webgpu.ok is False
    assert webgpu.error is not None and webgpu.limit is not None and webgpu.error > 10 * webgpu.limit


def test_a_number_that_it_lacks_is_told(bundle: Bundle, measure: Measure) -> None:
    """The angles of RoPE are in float64, which onnxruntime-web's build for WebGPU does not have, on the CPU either."""
    wasm, webgpu = measure(bundle("attention"))
    assert wasm.ok and webgpu.ok is None
    assert webgpu.missing.startswith("unsupported: onnxruntime-web cannot load model.onnx: ")


def test_a_browser_without_it_is_told(
    bundle: Bundle, measure: Measure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chromium does not offer a GPU in software unless asked, and may not start."""
    options = 'for option; do shift; case $option in *webgpu*) ;; *) set -- "$@" "$option" ;; esac; done'
    reasons = {f'{options}\nexec {shutil.which("chromium")} "$@"': "this browser has no WebGPU"}
    reasons |= {"exit 1": "Chromium ended before the proof did"}
    (browser := tmp_path / "chromium").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for script, reason in reasons.items():
        browser.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        _, webgpu = measure(bundle("reduced gru"))
        assert webgpu.missing == f"not run: {reason}"
