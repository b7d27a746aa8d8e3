"""Results derived from times, on times and clocks whose answer is known. No test measures speed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from seqlab.attention import Attention
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, LSTM, RNN
from seqlab.study.rules import Verdict, judge
from seqlab_studies import speed
from seqlab_studies.lib import timing
from seqlab_studies.lib.decoders import ATTENTION, ATTENTIONS, PYTORCH, RECURRENCES, decoders_of
from seqlab_studies.lib.sizes import matched, size_of
from seqlab_studies.lib.timing import ALL, BYTES, COLUMNS, LAST, PAIRS, READS, ROWS, WRITES, Line, Seconds, Sizes, timed
from seqlab_studies.pace import AGAIN, AT, LENGTHS, PLACES, TWENTY, Pace, points_of, values_of
from seqlab_studies.speed import PARALLEL, RECURRENT, Speed, all_at_once, ratio, told_of


class Clock:
    """Works move it; a machine that becomes slower slows all works of a round."""

    def __init__(self) -> None:
        self.now, self.slow = 0.0, 1.0

    def work(self, seconds: float, *, last: bool = False) -> None:
        self.now += self.slow * seconds
        self.slow *= 3 if last else 1

    def __call__(self) -> float:
        return self.now


def planted(read: float = 2.0, grows: float = 1.0, cross: int = 1024) -> tuple[Seconds, Sizes]:
    """Attention's time is a power of the length, and its tokens' and bytes another; it reads as long as recurrences,
    which are linear, where they cross, and writes 20 times as long."""
    seconds: Seconds = {}
    sizes: Sizes = {}
    for runtime, lengths in LENGTHS.items():
        for name in ATTENTIONS | RECURRENCES:
            power = read if name in ATTENTIONS else 1.0
            seconds[Line(name, READS, runtime)] = {at: [(at / cross) ** power] * 3 for at in lengths}
            power = grows if name in ATTENTIONS else 0.0
            writes = {at: 20 / AT * (AT / cross) ** read * (at / AT) ** power for at in PLACES}
            seconds[Line(name, WRITES, runtime)] = {at: [of] * 3 for at, of in writes.items()}
            sizes[Line(name, BYTES, runtime)] = {at: int(64 * at**power) for at in PLACES}
    once = seconds[Line(ATTENTION, READS, PYTORCH)][AT]
    for name, times in ((TWENTY, 20), (AGAIN, 1)):
        seconds[Line(name, READS)] = {AT: [times * of for of in once]}
    for name, power in ((PAIRS, 2), (ROWS, 1)):
        seconds[Line(name, READS)] = {at: [(at / COLUMNS) ** power] * 3 for at in LENGTHS[PYTORCH]}
    for name, power in ((ALL, 1), (LAST, 0)):
        seconds[Line(name, WRITES)] = {at: [float(at**power)] * 3 for at in PLACES}
    return seconds, sizes


def verdicts(**changed: Any) -> dict[str, Verdict]:
    values = values_of(*planted(**changed))
    return {claim.key: judge(claim, {case: [of] * 3 for case, of in values.items()}).verdict for claim in Pace.claims}


def test_all_is_supported_where_it_is_so() -> None:
    assert set(verdicts().values()) == {Verdict.SUPPORTED}
    values = values_of(*planted())
    assert values["attention reads, PyTorch"] == pytest.approx(2) and values["GRU reads, PyTorch"] == pytest.approx(1)
    assert values["attention writes, PyTorch"] == values["attention, bytes of its state"] == PLACES[-1] / PLACES[0]
    assert values["GRU reads sooner, the bundle"] == pytest.approx(1024)
    assert values["attention writes slower, PyTorch"] == pytest.approx(20)


@pytest.mark.parametrize(
    ("changed", "key"),
    [({"read": 1.2}, "quadratic"), ({"grows": 0.0}, "grows"), ({"cross": 20_000}, "sooner")],
)
def test_and_refuted_where_it_is_not(changed: dict[str, Any], key: str) -> None:
    found = verdicts(**changed)
    assert found[key] == (Verdict.DEPENDS if key == "sooner" else Verdict.REFUTED)
    assert Verdict.INVALID not in found.values()


@pytest.mark.parametrize("claim", Pace.claims, ids=lambda claim: claim.key)
def test_a_measure_that_tells_nothing_is_found_out(claim: Any) -> None:
    values = values_of(*planted())
    assert judge(claim, {case: [1.0] * 3 for case in values}).verdict == Verdict.INVALID


def test_where_lines_cross() -> None:
    flat = dict.fromkeys(PLACES, 1.0)
    assert timing.crossover(flat, {at: at / 500 for at in PLACES}) == pytest.approx(500)
    assert timing.crossover(flat, {at: 2.0 for at in PLACES}) == PLACES[0]
    assert timing.crossover(flat, flat) == 2 * PLACES[-1], "as long is not less"
    slow_at_1024 = flat | {1024: 9.0}
    assert 1024 < timing.crossover(slow_at_1024, {at: 2.0 for at in PLACES}) < 4096, "from there on, and not before"


def test_slow_rounds_do_not_decide() -> None:
    assert timing.growth(timing.least({16: [1.0, 9.0, 1.0], 64: [18.0, 2.0, 90.0]})) == 2
    seconds, sizes = planted()
    slowed = {line: {at: [of[0], 7 * of[0], 9 * of[0]] for at, of in times.items()} for line, times in seconds.items()}
    assert values_of(slowed, sizes) == values_of(seconds, sizes)


def test_times_of_a_clock_are_of_one_work() -> None:
    line, clock = Line("any", READS), Clock()
    works = {(line, 8): (partial(clock.work, 3.0), 4), (line, 16): (partial(clock.work, 5.0), 1)}
    assert timing.taken(works, 2, clock) == {line: {8: [3.0, 3.0], 16: [5.0, 5.0]}}


def test_products_whose_number_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(torch, "mm", lambda left, right: made.append((len(left), right.shape[1])))
    counts = {}
    for name, work in (("pairs", timing.pairs), ("rows", timing.rows)):
        for length in (COLUMNS, 2 * COLUMNS):
            made.clear()
            work(length)()
            assert set(made) == {(timing.BLOCK, timing.BLOCK)}
            counts[name, length] = len(made)
    assert counts["pairs", COLUMNS] == counts["rows", COLUMNS]
    assert counts["pairs", 2 * COLUMNS] == 2 * counts["rows", 2 * COLUMNS] == 4 * counts["pairs", COLUMNS]


def test_what_is_timed_is_the_decoder_at_its_place() -> None:
    calls: list[Any] = []

    class Recorded(TorchDecoder):
        def prefill(self, tokens: Any, pad_mask: Any) -> Any:
            calls.append(tokens.shape)
            return super().prefill(tokens, pad_mask)

        def step(self, tokens: Any, state: Any) -> Any:
            calls.append((tokens.shape, int(state["position"])))
            return super().step(tokens, state)

    made = DecoderLM(16, 8, d_model=8, mixer=GRU, positions=NoPositions)
    decoders = {("GRU", PYTORCH): Recorded(made)}
    for (_, length), (work, _) in timing.reading(decoders, {PYTORCH: (4, 40)}).items():
        work()
        assert calls.pop() == (1, length)
    works, sizes = timing.writing(decoders, (4, 40))
    for (_, place), (work, _) in works.items():
        for _ in range(2):
            work()
            assert calls.pop() == ((1,), place), "each token after the same text"
    assert sizes == {Line("GRU", BYTES, PYTORCH): dict.fromkeys((4, 40), 2 * 8 * 4 + 8)}


def test_models_are_matched() -> None:
    sizes = {name: size_of(decoder.model) for (name, _), decoder in decoders_of(64, "cpu", exported=False).items()}
    assert all(size == pytest.approx(sizes[ATTENTION], rel=0.05) for size in sizes.values()) and len(sizes) == 6
    for name, make in (RECURRENT | PARALLEL).items():
        for to in map(size_of, map(Attention, (16, 64))):
            assert size_of(make(matched(make, to))) == pytest.approx(to, rel=0.1), name


def test_rows_for_the_figures() -> None:
    points = points_of(*planted())
    assert len(points) < 700
    (row,) = [row for row in points if [*row.values()][:4] == ["GRU", READS, PYTORCH, 4096]]
    assert row["cheaper"] == pytest.approx(4) and row["a token"] == pytest.approx(1e3 * 4 / 4096)
    drawn = [Pace().figure(claim, [{**row, "seed": 0} for row in points]).to_dict() for claim in Pace.claims]
    assert all(len(next(iter(of["datasets"].values()))) > 10 for of in drawn)


def test_without_a_gpu_their_scale_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert len(Pace().measure("gpu", 0, {}).needs) == len(Pace.claims)
    assert Speed().measure("gpu", 0, {}).needs.keys() == {"slower", "reason", "utilisation"}


def test_ratios_of_a_machine_that_becomes_slower() -> None:
    clock = Clock()
    works = {"slow": partial(clock.work, 12.0), speed.ATTENTION: partial(clock.work, 1.0, last=True)}
    found = timed(works, 5, clock)
    assert found[speed.ATTENTION][0] == 3.0, "the first round does not count"
    assert ratio(found, "slow", speed.ATTENTION) == pytest.approx(12)
    found["slow"][2] *= 100
    assert ratio(found, "slow", speed.ATTENTION) == pytest.approx(12), "one round does not decide"


def test_each_is_compared_with_attention_and_with_the_same_steps_at_once() -> None:
    loop, at_once = "GRU, loop in Python", speed.AT_ONCE.format("GRU")
    found = {speed.ATTENTION: [1.0], speed.AGAIN: [1.0], "MinGRU": [2.0], loop: [30.0], at_once: [6.0]}
    values, points = told_of(found, 512, speed.ONE)
    assert values == {
        speed.AGAIN: 1,
        "MinGRU, one text of 512": 2,
        f"{loop}, one text of 512": 30,
        f"{loop}, one text of 512, over all at once": 5,
    }
    assert len(points) == 4


@pytest.mark.parametrize("make", [RNN, LSTM, GRU])
def test_all_steps_at_once_are_those_of_the_loop(make: type[RNN | LSTM | GRU]) -> None:
    """The first step of each text, from a state that is its input."""
    mixer, x = make(16), torch.randn(8, 1, 16)
    state = dict.fromkeys(mixer.state_names, x)
    torch.testing.assert_close(all_at_once(mixer, x), mixer(x, state)[0])
