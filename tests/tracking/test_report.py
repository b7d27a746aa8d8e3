from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest
from matplotlib.axes import Axes

from seqlab.comparison import report
from seqlab.comparison.comparison import Comparison, compare
from seqlab.comparison.costs import front, quality_against_costs
from seqlab.comparison.curves import learning_curves
from seqlab.comparison.differences import differences
from seqlab.comparison.drawing import look
from seqlab.comparison.lengths import by_length, length_curves, length_surfaces
from seqlab.comparison.settings import settings
from seqlab.tracking.runs import find_run
from seqlab.tracking.store import Store
from tracking.tiny import make_run

EVIL = "<script>alert('x')</script> $\\frac{$ --> <!-- ]]> &amp; 名前"
LOSSES = {"val/a b": (1.0, 0.5), "val/loss": (3.0, 2.0)}
LOADING = {"src", "href", "action", "data", "poster", "srcset"}


class Page(HTMLParser):
    """The page's elements and what they would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name.removeprefix("xlink:") in LOADING and not (value or "").startswith("#"):
                self.loads.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(store: Store) -> Page:
    return Page(report.page(compare(store=store)))


@pytest.fixture(scope="module")
def evil(shared: Store) -> Comparison:
    for number, name in enumerate((EVIL, "x" * 200)):
        points = {metric: [(0, first + number), (9, last + number)] for metric, (first, last) in LOSSES.items()}
        points["train/loss"] = [(step, 4.0 - step / 9) for step in range(10)]
        points["num_tokens"] = [(step, 100.0 * (step + 1)) for step in range(10)]
        points["perf/tokens_per_s"] = [(9, 1000.0 * (number + 1))]
        params = {"same": "1", "model.name": f"{EVIL}{number}"}
        tags = {"git.commit": EVIL, "dataset": EVIL, "hardware.cpu": EVIL}
        make_run(shared, name, points, experiment=EVIL, params=params, tags=tags)
    return compare(store=shared, tokens=1e9, price=2)


def test_the_page_escapes_what_users_name_and_loads_nothing(evil: Comparison) -> None:
    page = Page(text := report.page(evil))
    assert page.text.count(EVIL) >= 6
    assert page.tags.count("figure") == 4  # the losses, the speed and the cost
    assert page.tags.count("html") == page.tags.count("body") == 1
    assert page.loads == []
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert not re.search(r"@import|url\((?!#)", text)

    assert "name" in page.text and "model.name" not in page.text and "same" not in page.text, "only what differs"
    for best in ("2 runs by val/loss", "2.0000", "3.0000", "11.57", "556"):
        assert best in page.text


def test_the_page_says_how_to_repeat_each_run(store: Store) -> None:
    make_run(store, "begun", {"val/loss": [(0, 1.0)]}, tags={"command": "seqlab fit --config lm/gru --data.path 'a b'"})
    resumed = find_run(make_run(store, "resumed", {"val/loss": [(0, 2.0)]}), store)
    resumed.artifacts.mkdir(parents=True)
    (resumed.artifacts / "config.yaml").write_text("run_name: resumed\nresume: auto\nckpt_path: x.ckpt\n")
    text = page_of(store).text
    assert "seqlab fit --config lm/gru --data.path 'a b'" in text
    config = f"mlruns/tests/{resumed.id}/artifacts/config.yaml"
    assert f"seqlab fit --config {config} --run_name resumed-again --ckpt_path=null --resume=null" in text
    assert text.count("seqlab fit ") == 2


def test_a_difference_has_the_shortest_name_that_no_other_has(store: Store) -> None:
    mixer, ffn = "model.init_args.model.init_args.mixer", "model.init_args.model.init_args.block.init_args.ffn"
    same = {"seed_everything": "0", "run_name": "a", "data.init_args.lr": "4"}
    own = {"model.init_args.lr": "0.020838320204682157", f"{mixer}.class_path": "seqlab.recurrence.GRU"}
    make_run(store, "a", {"val/loss": [(0, 1.0)]}, params=same | own)
    others = {"seed_everything": "1", "run_name": "b", f"{ffn}.dropout": "0.1", f"{mixer}.init_args.dropout": "0.2"}
    mixers = {f"{mixer}.class_path": "seqlab.attention.Attention"}
    later = {"git.commit": "0123456789abc", "git.dirty": "true"}
    options = same | mixers | others | {"model.init_args.lr": "0.001"}
    make_run(store, "b", {"val/loss": [(0, 2.0)]}, params=options, tags=later)
    comparison = compare(store=store)
    found = {one.title: one.values for one in differences(comparison.rows)}
    assert found == {
        "lr": ["0.020838320204682157", "0.001"],
        "mixer": ["GRU", "Attention"],
        "ffn.dropout": ["", "0.1"],
        "mixer.dropout": ["", "0.2"],
    }
    assert list(found)[:2] == ["lr", "mixer"], "first what all have"
    page = Page(report.page(comparison))
    assert page.text.count("0123456789 + changes") == 2, "where it comes from, and that it differs"
    assert "0.02084" in page.text and "0.020838320204682157" not in page.text, "which its tooltip has"


def test_a_sweep_is_drawn_by_what_varies(store: Store) -> None:
    def trial(number: int, loss: float | None, **params: str) -> None:
        points = {} if loss is None else {"val/loss": [(0, loss)]}
        make_run(store, f"sweep-{number}", points, params=params, tags={"sweep": "sweep"})

    trial(0, 2.0, lr="0.001", mixer="GRU", layers="2", of_gru="1", same="7")
    trial(1, 1.0, lr="0.1", mixer="LSTM", layers="2", same="7")
    trial(2, 3.0, lr="0.01", mixer="RNN", layers="4", same="7")
    trial(3, None, lr="9", mixer="Failed", layers="9", same="7")
    (svg,) = settings(compare(store=store)).values()
    axes = {"layers": ["2", "4"], "lr": ["0.001", "0.01", "0.1"], "mixer": ["GRU", "LSTM", "RNN"]}
    axes["val/loss"] = ["1", "2", "3"]
    written = re.findall(r">([^<>]+)</text>", svg)
    assert sorted(written) == sorted(text for name, of in axes.items() for text in (name, *of))
    lines = re.findall(r'<path d="(M [^"]*)" clip-path.*?stroke: (#\w+).*?stroke-width: (\S+)[;"]', svg)
    lines = [line for line in lines if line[0].count("L") == 3]
    assert [line[2] for line in lines] == ["1.2", "1.2", "2.6"], "the best above the others"
    at_lr = [float(re.findall(r"L \S+ (\S+)", path)[0]) for path, _, _ in lines]
    assert at_lr[0] == pytest.approx((at_lr[1] + at_lr[2]) / 2, abs=0.01), "0.01 in the middle of 0.001 and 0.1"
    brightness = [sum(bytes.fromhex(line[1][1:])) for line in lines]
    assert brightness == sorted(brightness, reverse=True), "in grey too"

    trial(4, 1.5, same="7")
    (alone,) = compare(["sweep-4"], store=store).rows
    assert settings(Comparison([alone], "val/loss")) == {}, "of one setting nothing varies"


def test_nothing_of_the_training_loss_is_cut_off(store: Store) -> None:
    losses = [9.0, 5.0, 2.5, 2.0]
    make_run(store, "run", {"train/loss": list(enumerate(losses)), "val/loss": [(0, 2.1), (3, 2.0)]})
    svg = learning_curves(compare(store=store), "train/loss") or ""
    boxes = set(re.findall(r'<rect x="\S+" y="(\S+)" width="\S+" height="(\S+)"', svg))
    ((top, height),) = [(float(y), float(h)) for y, h in boxes]
    paths = re.findall(r'<path d="([^"]*)" clip-path', svg)
    path = next(found for found in paths if len(found.split("L")) == len(losses))
    heights = [float(number) for number in re.findall(r"[ML] \S+ (\S+)", path)]
    assert top < min(heights) < max(heights) < top + height


def test_the_report_is_whole_or_absent(evil: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    report.write_report(evil, path)
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    path.write_text("old")
    monkeypatch.setattr(report, "page", lambda _: "new")
    with pytest.raises(OSError, match="nowhere"):
        report.write_report(evil, tmp_path / "nowhere" / "report.html")
    monkeypatch.setattr("seqlab.files.atomic.os.replace", Mock(side_effect=OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        report.write_report(evil, path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir() if "report" in entry.name] == ["report.html"]


def test_figures_are_the_same_each_time_and_a_name_in_them_is_neither_formula_nor_markup(evil: Comparison) -> None:
    first, again = ([learning_curves(evil), *quality_against_costs(evil)] for _ in range(2))
    assert first == again
    for figure in first:
        ElementTree.fromstring(figure or "")


def test_a_figure_is_drawn_once(evil: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, drawn = Axes.draw, Mock()
    monkeypatch.setattr(Axes, "draw", lambda axes, renderer: (drawn(), draw(axes, renderer)))
    assert learning_curves(evil) is not None
    drawn.assert_called_once_with()


def test_runs_without_speed_or_tokens_have_a_page(store: Store) -> None:
    make_run(store, "bare", {"val/loss": [(0, 1.0)]})
    make_run(store, "nothing")
    page = page_of(store)
    assert page.tags.count("figure") == 1
    assert "bare" in page.text


def test_long_and_many_runs_have_a_page(store: Store) -> None:
    """The points of long runs are thinned to means."""
    make_run(store, "long", {"val/loss": [(step, float(step % 2)) for step in range(5000)]})
    assert len(learning_curves(compare(store=store)) or "") < 300_000
    for number in range(1, 20):
        make_run(store, f"run {number}", {"val/loss": [(0, 1.0 + number)], "perf/tokens_per_s": [(0, 10.0 + number)]})
    page = page_of(store)
    assert "20 runs by val/loss" in page.text and "--rows: 20;" in page.text, "for the heights of what is not in view"
    assert page.tags.count("figure") == 2


def test_no_other_point_beats_those_of_the_front() -> None:
    nan, points = math.nan, [(1.0, 3.0), (2.0, 2.0), (2.0, 2.0), (2.0, 4.0), (3.0, 2.0), (4.0, 1.0), (5.0, 1.5)]
    assert front(points) == [0, 1, 2, 5], "equal ones both are on it; as good at a higher cost is beaten"
    assert front(points, more_cost=True) == [5, 6]
    assert front(points, more_value=True) == [0, 3]
    assert front(points, more_cost=True, more_value=True) == [3, 4, 6]
    assert front([(1.0, nan), (nan, 1.0), (2.0, 2.0), (math.inf, 1.0)]) == [2]
    assert front([]) == []


@pytest.mark.slow
def test_quality_is_drawn_against_every_cost_that_is_known(store: Store) -> None:
    """The slow one is the best, the fast one the cheapest; the third is beaten but in its speed."""
    costs = {"num_params": (9.0, 9.0, 9.0), "num_flops": (1e6, 9e6, 9e6), "state_size": (1.0, 8.0, 9.0)}
    costs |= {"perf/tokens_per_s": (20.0, 10.0, 30.0), "perf/train_seconds": (1.0, 2.0, 3.0)}
    losses = {"fast": [2.0], "slow": [1.0, 1.1], "third": [3.0]}
    for k, (name, values) in enumerate(losses.items()):
        for seed, loss in enumerate(values):
            points = {metric: [(0, of[k])] for metric, of in costs.items()} | {"val/loss": [(0, loss)]}
            make_run(store, f"{name}-{seed}", points, params={"of": name, "seed_everything": str(seed)})
    comparison = compare(store=store)
    names = {look(index)["color"]: row.name for index, row in enumerate(comparison.rows)}
    on_front = {}
    for svg in (figures := quality_against_costs(comparison)):
        (title,) = re.findall(r">(parameters|FLOPs[^<]*|bytes[^<]*|tokens/s[^<]*|seconds[^<]*)</text>", svg)
        drawn = re.findall(r'<use \S+ x="(\S+)" y="(\S+)" style="(.*?)[;"]', svg)
        colours = {(x, y): fill for x, y, style in drawn if (fill := style.removeprefix("fill: ")) in names}
        on_front[title] = sorted(names[colours[x, y]] for x, y, style in drawn if style == "fill-opacity: 0")
    assert on_front == {
        "parameters": ["slow"],
        "FLOPs of training a token": ["fast-0", "slow"],
        "bytes of state, float32": ["fast-0", "slow"],
        "tokens/s in training": ["fast-0", "slow", "third-0"],
        "seconds of training": ["fast-0", "slow"],
    }
    assert all(svg.count('id="LineCollection') == 1 for svg in figures), "the interval of the row of several seeds"


def by_position(split: str, **of: float) -> dict[str, list[tuple[int, float]]]:
    buckets = {"a": "1-8", "b": "9-16", "c": "over 1024"}
    return {f"{split}/loss_by_position/{buckets[name]}": [(0, value)] for name, value in of.items()}


def test_scores_by_position_tell_what_is_beyond_the_training(store: Store) -> None:
    """A model that was trained at two lengths, one of them with two seeds, and one that was not tested."""
    gru, lstm = {"model.mixer": "GRU", "data.seq_len": "8"}, {"model.mixer": "LSTM"}
    loss = {"val/loss": [(0, 1.0)]}
    for seed in (0, 1):
        points = by_position("val", a=9) | by_position("test", a=4 + seed, b=3 + seed, c=7)
        make_run(store, f"gru-8-{seed}", loss | points, params=gru | {"seed_everything": str(seed)})
    points = by_position("val", a=9, b=9) | by_position("test", a=2, b=1)
    make_run(store, "gru-16", {"val/loss": [(0, 2.0)]} | points, params=gru | {"data.seq_len": "16"})
    make_run(store, "lstm", {"val/loss": [(0, 3.0)]} | by_position("val", a=5), params=lstm)
    comparison = compare(store=store)
    (found,) = by_length(comparison)
    assert (found.metric, found.axis) == ("test/loss_by_position", "position")
    assert found.buckets == ["1-8", "9-16", "over 1024"]
    assert found.values == [{"1-8": 4.5, "9-16": 3.5, "over 1024": 7.0}, {"1-8": 2.0, "9-16": 1.0}, {}]
    assert found.trained == ["1-8", "9-16", "1-8"]
    assert [found.beyond(row) for row in (0, 1)] == [[False, True, True], [False, False, True]]

    surfaces = length_surfaces(comparison, found)
    assert list(surfaces) == ["gru"]
    shown = re.findall(r">([^<>]+)</text>", surfaces["gru"])
    assert [text for text in shown if re.fullmatch(r"[\d.]+", text)] == ["4.5", "3.5", "7", "2", "1"]
    text = report.page(comparison)
    assert "test/loss_by_position of gru" in text and "Hollow markers are beyond" in text
    assert Page(text).loads == []
    drawn = length_curves(found)
    hollow = re.findall(r'<use xlink:href="#\S+" x="[^"]+" y="[^"]+" style="fill: #ffffff', drawn)
    assert len(hollow) == 2


def test_single_lengths_beyond_those_of_training(store: Store) -> None:
    """Validated in ranges, tested by each length: what the last range may hold is not beyond; few lengths are named."""
    each = {f"test/exact_match_by_length/{length}": [(0, 1 / length)] for length in range(1, 41)}
    make_run(store, "copy", {"val/loss": [(0, 1.0)], "val/exact_match_by_length/9-16": [(0, 0.5)]} | each)
    (found,) = by_length(compare(store=store))
    assert found.buckets == [str(length) for length in range(1, 41)]
    assert found.beyond(0) == [length > 16 for length in range(1, 41)]
    assert set(re.findall(r">(\d+)</text>", length_curves(found))) == set(found.buckets[::4])
