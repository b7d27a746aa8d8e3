"""The inside of a model as a page shows it, by pointer and keyboard, matches Python's values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli.conftest import Seqlab
from contracts.subjects import randomized
from export.test_encoder_bundles import OF_TEXT, WRITING, encoder, exported
from export.toys import TOKENIZER, Export, Exported, toy
from runtime.conftest import WORDS
from seqlab.attention import Attention, DifferentialAttention
from seqlab.models import BagOfWords, Tagger
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import LSTM
from seqlab_export.page.html import LOOK_INSIDE, Shown, write_page
from seqlab_export.runner.graph_runner import open_bundle
from web.browser import Opened, needs_browser

pytestmark = [*needs_browser, pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]
TEXT = "fed cab"


def show(opened: Opened, *bundles: Path, width: int = 1280, **options: Any) -> None:
    """Opens a page of bundles, which lies beside the first one."""
    out = bundles[0].with_name(f"{len([*bundles[0].parent.iterdir()])}.html")
    write_page([Shown(bundle.name, bundle) for bundle in bundles], out, **options)
    opened.open(out, width)


def share(number: Any) -> float:
    """The share that an element tells as a percentage."""
    return float(getattr(number, "text", number).rstrip("%")) / 100


def press(opened: Opened, selector: str, *keys: str) -> None:
    (place,) = opened.all(selector)
    place.send_keys(*keys)


def listed(opened: Opened) -> dict[str, float]:
    """The numbers beside the chosen token, by the names of those that it looks at."""
    rows = [row.text.split("\n") for row in opened.all("#arcs .bars li")]
    return {name: share(number) for name, number in rows}


def choose(opened: Opened, *names: str) -> None:
    """Sets the view's choices, in their order."""
    for number, name in enumerate(names):
        opened.all("#inside select")[number].send_keys(name)


def chosen(opened: Opened) -> list[str]:
    return [str(select.get_property("value")) for select in opened.all("#inside select")]


def text_of(opened: Opened, selector: str) -> str:
    return str(opened.until(f"return document.querySelector('{selector}')?.textContent"))


def until_there(opened: Opened, selector: str, number: int | None = None) -> None:
    """Waits for so many elements, or for any."""
    found = f"document.querySelectorAll('{selector}').length"
    opened.until(f"return {found} > 0" if number is None else f"return {found} === {number}")


def until_read(opened: Opened, length: int) -> None:
    """Waits for the view of a text of so many tokens."""
    opened.until(f"return document.querySelector('#inside .key').textContent.includes(' at {length}')")
    until_there(opened, "#kept-strip canvas")


@pytest.fixture(scope="module", name="lstm")
def _lstm(export: Export) -> Exported:
    return export(LSTM, NoPositions)


@pytest.fixture(scope="module", name="rope")
def _rope(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = tmp_path_factory.mktemp("rope") / "rope"
    exported(toy(Attention, RoPE, num_layers=2), bundle, taps=["attention", "state"])
    return bundle


@pytest.mark.parametrize("width", [390, 1280])
def test_arcs_have_the_weights_of_the_head_that_is_chosen(width: int, opened: Opened, rope: Path) -> None:
    tokens = np.array([TOKENIZER.encode(TEXT)])
    weights = open_bundle(rope).tap(tokens=tokens, pad_mask=tokens > 0)["attention.stack.blocks.1.mixer"][0]
    show(opened, rope, width=width, tab=LOOK_INSIDE, text=TEXT)
    until_there(opened, "#arcs .arc")
    assert len(opened.all("#arcs .place")) == len(TEXT)
    left, right = (opened.all(drawing)[0].rect for drawing in ("#arcs", "#attention"))
    assert (right["x"] >= left["x"] + left["width"]) == (width == 1280), "beside each other where there is room"
    choose(opened, "stack.blocks.1.mixer", "head 3")
    press(opened, "#arcs svg", "\ue014", "\ue014", "\ue014")  # to the third token
    assert listed(opened) == pytest.approx(
        {f"{TEXT[column]} ({column + 1})": weights[2, 2, column] for column in range(3)}
        | {name: 0.0 for name in listed(opened) if int(name.split("(")[1][:-1]) > 3},
        abs=1e-3,
    )
    assert len(opened.all("#arcs .arc")) == sum(weights[2, 2, :3] >= 0.01)
    press(opened, "#arcs svg", "\ue00c")  # Escape
    assert len(opened.all("#arcs .arc")) == (weights[2] >= 0.01).sum()
    opened.all("#arcs .place")[4].click()
    assert listed(opened)["f (1)"] == pytest.approx(weights[2, 4, 0], abs=1e-3)
    press(opened, "#attention canvas", "\ue015", "\ue014")
    found = re.search(r"row 2 e, column 2 e: ([\d.e-]+)", text_of(opened, "#attention .reading"))
    assert found is not None and float(found[1]) == pytest.approx(weights[2, 1, 1], rel=0.01)
    opened.give(f"{TEXT}a")
    until_there(opened, "#arcs .place", len(TEXT) + 1)
    assert chosen(opened) == ["stack.blocks.1.mixer", "head 3"]
    assert opened.all("#attention canvas")[0].get_attribute("aria-label") == "attention.stack.blocks.1.mixer, head 3"
    opened.check(width)


def test_weights_below_zero_have_bars_of_their_size(opened: Opened, tmp_path: Path) -> None:
    exported(toy(DifferentialAttention, RoPE), tmp_path / "differential", taps=["attention"])
    show(opened, tmp_path / "differential", tab=LOOK_INSIDE, text=TEXT)
    until_there(opened, "#arcs .arc.negative")
    opened.all("#arcs .place")[-1].click()
    weights = [*listed(opened).values()]
    bar, track = (
        f"[...document.querySelectorAll('#arcs .{name}')].map((e) => e.clientWidth)" for name in ("bar", "track")
    )
    shares = opened.browser.execute_script(f"const of = {track}; return {bar}.map((width, row) => width / of[row])")
    assert min(weights) < 0 and shares == pytest.approx([abs(weight) for weight in weights], abs=0.01)
    opened.check(1280)


def test_a_target_is_drawn_below_its_source(opened: Opened, tmp_path: Path) -> None:
    """The names of source and target stand where they belong, when both are as long, too."""
    bundle = tmp_path / "translator"
    model = randomized(WRITING["transformer"]()).float().eval()
    exported(model, bundle, taps=["attention"])
    show(opened, bundle, tab=LOOK_INSIDE, text="abc")
    until_there(opened, "#arcs .arc")
    names = [option.text for option in opened.all("#inside select option")]
    choose(opened, next(name for name in names if not name.startswith("encoder") and not name.endswith("0.mixer")))
    places = [place.text for place in opened.all("#arcs .place")]
    assert places[:5] == ["a", "b", "c", "(end)", "(start)"]
    opened.check(1280)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_state_and_what_is_kept_of_it_are_told_in_numbers(width: int, opened: Opened, lstm: Exported) -> None:
    with torch.no_grad():
        states = [lstm.model(torch.tensor([TOKENIZER.encode(TEXT[:end])]))[1] for end in range(1, len(TEXT) + 1)]
    show(opened, lstm.folder, width=width, tab=LOOK_INSIDE, text=TEXT)
    said = text_of(opened, "#kept li:nth-child(2)")
    found = re.match(r"layer 1, c: a token keeps ([\d.]+)% of the state: it reaches back ([\d.]+) tokens", said)
    assert found is not None and float(found[2]) == pytest.approx(1 / (1 - float(found[1]) / 100), rel=0.05)
    press(opened, "#strip canvas", "\ue015", "\ue014", "\ue014")  # one down, two to the right
    found = re.search(r"channel 2, token 3 d: (-?[\d.e-]+)", text_of(opened, "#strip .reading"))
    assert found is not None
    assert float(found[1]) == pytest.approx(states[2]["0_h"][0, 0, 1].item(), rel=0.01, abs=1e-3)
    assert "share kept of layer 1, c" in str(opened.all("#kept-strip canvas")[0].get_attribute("aria-label"))
    choose(opened, "layer 2, h", "layer 2, c")
    opened.give(f"{TEXT}a")
    until_read(opened, len(TEXT) + 1)
    assert chosen(opened) == ["layer 2, h", "layer 2, c"]
    opened.check(width)


def test_drawings_follow_the_colours_and_old_ones_are_let_go_of(opened: Opened, lstm: Exported) -> None:
    show(opened, lstm.folder, tab=LOOK_INSIDE, text=TEXT)
    until_there(opened, "#kept-strip canvas")
    opened.browser.execute_script("window.old = new WeakRef(document.querySelector('#strip canvas'))")
    opened.give(f"{TEXT}a")
    until_read(opened, len(TEXT) + 1)
    opened.browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
    opened.until("return window.old.deref() === undefined")
    drawn = "return document.querySelector('#strip canvas').toDataURL()"
    light = opened.browser.execute_script(drawn)
    opened.show("What it is")
    for scheme in ("dark", ""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        opened.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        opened.show(LOOK_INSIDE)
        assert (opened.browser.execute_script(drawn) == light) == (scheme == "")
    assert opened.logs() == ([], [])


def test_a_vit_shows_what_its_class_looks_at(tmp_path: Path, inside: Callable[[Path], Seqlab], opened: Opened) -> None:
    seqlab = inside(tmp_path)
    seqlab("fit", "--config", "image/vit", "--run_name", "vit", "--trainer.max_steps", "2")
    seqlab("inspect", "vit", "--out", "inside.html")
    opened.open(tmp_path / "inside.html")
    until_there(opened, "#arcs .arc")
    places = [place.text for place in opened.all("#arcs .place")]
    assert places == ["(class)", *(f"{row}·{column}" for row in range(1, 5) for column in range(1, 5))]
    opened.all("#arcs .place")[0].click()
    assert len(listed(opened)) == 8 and sum(listed(opened).values()) < 1
    opened.check(1280)


def test_a_masked_model_is_tried_and_looked_into(opened: Opened, tmp_path: Path) -> None:
    bundle = tmp_path / "masked"
    model = randomized(OF_TEXT["masked"]()).float().eval()
    exported(model, bundle, taps=["attention", "state"])
    show(opened, bundle, text=TEXT)
    until_there(opened, "#heat .token")
    with torch.no_grad():
        # The last one is the mask's.
        chances = model(torch.tensor([TOKENIZER.encode(TEXT)])).softmax(-1)[0, :, :-1]
    opened.all("#heat .token")[1].click()
    found = [*map(share, opened.all("#choices .number"))]
    assert found == pytest.approx(chances[1].sort(descending=True).values[:10].tolist(), abs=1e-3)
    (put,) = (button for button in opened.all("#choices button") if button.text.startswith("a\n"))
    put.click()
    opened.until(f"return document.querySelector('#panel textarea').value === '{TEXT[0]}a{TEXT[2:]}'")
    opened.show(LOOK_INSIDE)
    until_there(opened, "#arcs .arc")
    opened.show("Try it")
    opened.give("")
    opened.until("return document.querySelector('#panel .notice').textContent === 'Type a text.'")
    assert [opened.all(place)[0].text for place in ("#surprise", "#heat", "#choices")] == ["", "", ""]
    opened.check(1280)


def test_frames_of_features_have_a_label_each_and_of_many_the_first_are_drawn(opened: Opened, tmp_path: Path) -> None:
    """All are read."""
    folder, length, labels = tmp_path / "frames", 70, ["O", "B-X", "I-X"]
    model = Tagger(2, 3, length, encoder=encoder(positions=NoPositions, embed=torch.nn.Linear))
    exported(randomized(model).float().eval(), folder, tokenizer=None, labels=labels, taps=["attention"])
    show(opened, folder)
    opened.give("1 2\n-1 0.5\n0 3")
    until_there(opened, "#classes .tag", 3)
    with torch.no_grad():
        chances = model(torch.tensor([[[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0]]])).softmax(-1)[0]
    shown = [tag.text.split() for tag in opened.all("#classes .tag")]
    told = [(str(place + 1), labels[int(row.argmax())]) for place, row in enumerate(chances)]
    assert [(place, label) for place, label, _ in shown] == told
    assert [share(number) for *_, number in shown] == pytest.approx(chances.max(-1).values.tolist(), abs=1e-3)
    opened.show(LOOK_INSIDE)
    frames = np.random.default_rng(0).normal(size=(1, length, 2)).astype("float32")
    (weights,) = open_bundle(folder).tap(features=frames, pad_mask=np.ones((1, length), bool)).values()
    opened.give("\n".join(" ".join(map(str, row)) for row in frames[0]))
    said = f"Only the first 64 positions are drawn; the model reads all {length}."
    opened.until(f"return document.querySelector('#panel .notice').textContent.includes('{said}')")
    until_there(opened, "#arcs .place", 64)
    opened.all("#arcs .place")[-1].click()
    first = sorted(weights[0, :, 63].mean(0)[:64])[-8:]
    assert sorted(listed(opened).values()) == pytest.approx(first, abs=1e-3)
    (others,) = re.findall(r"The others together: ([\d.]+)%", text_of(opened, "#arcs"))
    assert float(others) / 100 == pytest.approx(1 - sum(first), abs=1e-3)
    opened.check(1280)


def test_classifiers_stand_side_by_side(opened: Opened, tmp_path: Path) -> None:
    made: dict[str, Any] = {
        name: randomized(BagOfWords(TOKENIZER.vocab_size, 3, 40, d_model=8)).float().eval() for name in "ab"
    }
    made["tags"] = randomized(Tagger(WORDS.vocab_size, 3, 24, encoder=encoder())).float().eval()
    for name, model in made.items():
        exported(model, tmp_path / name, tokenizer=WORDS if name == "tags" else TOKENIZER, labels=["x", "y", "z"])
    show(opened, *(tmp_path / name for name in made), text="fed")
    opened.show("Compare")
    until_there(opened, "#classified article", 3)
    for name, column in zip("ab", opened.all("#classified article"), strict=False):
        with torch.no_grad():
            chances = made[name](torch.tensor([TOKENIZER.encode("fed")])).softmax(-1)[0]
        found = [*map(share, column.find_elements("css selector", ".number"))]
        assert found == pytest.approx(chances.sort(descending=True).values.tolist(), abs=1e-3)
    opened.check(1280)
