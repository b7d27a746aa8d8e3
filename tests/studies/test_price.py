"""The sums, against those of the papers."""

from __future__ import annotations

import pytest

from seqlab.studies.price import FITS, preset, printed_and_ours, size_of
from seqlab.studies.rules import Interval, Verdict


def test_options_change_a_preset() -> None:
    tied, untied = preset("transformer-base", 37_000), preset("transformer-base", 37_000, tie_embeddings="none")
    assert size_of(untied) - size_of(tied) == 2 * 37_000 * 512


def test_training_costs_what_the_papers_say() -> None:
    """GPT-3: 3.14e23 without attention's products (Brown et al. 2020, appendix D); the base Transformer: 3.3e18 of its
    hardware, of which it can have done a part only (Vaswani et al. 2017, table 2)."""
    found = printed_and_ours()
    _, years = found["years of GPT-3 at 28 TFLOP/s"]
    assert years * 365.25 * 86400 * 28e12 == pytest.approx(3.14e23, rel=0.05)
    _, days = found["base: 1 day of an A100 at 90%"]
    assert 0.1 * 3.3e18 < days * 86400 * 0.9 * 312e12 < 3.3e18


@pytest.mark.parametrize(
    ("percent", "verdict"), [(5, Verdict.SUPPORTED), (7, Verdict.INCONCLUSIVE), (10.1, Verdict.REFUTED)]
)
def test_two_digits_fit(percent: float, verdict: Verdict) -> None:
    assert FITS.judge(Interval(percent, percent)) == verdict
