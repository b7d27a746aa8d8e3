"""A page runs its bundles in a browser: what it writes is what Python writes, and it asks nothing of a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.subjects import randomized
from export.planted import asking, edit_graph, flip
from export.toys import Shared
from runtime.conftest import Bundle, Copy
from seqlab.cli import main
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from seqlab_export import open_text_model
from seqlab_export.bundle import export_bundle
from seqlab_export.page.html import Shown, write_page
from seqlab_export.page.parts import parts_of
from web.browser import Opened, needs_browser
from web.test_tokens import tokenizer_of

pytestmark = needs_browser
Page = Callable[..., Path]
WIDTHS = (390, 1280)
HOSTILE = {
    "long": "abc def " * 12_500,
    "emoji": "a😀b",
    "markup": "</script><script>window.broken = true</script>",
    "surrogates": "a\ud800b\udc00",
}


@pytest.fixture(scope="module", name="page")
def _page(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Page:
    def page(*names: str, **options: Any) -> Path:
        out = tmp_path_factory.mktemp("page") / "model.html"
        write_page([Shown(name, bundle(name)) for name in names], out, **options)
        return out

    return page


def check_proven(opened: Opened) -> None:
    """The page proves its bundle."""
    opened.show("What it is")
    opened.all("#prove")[0].click()
    opened.until("return document.querySelector('#proof table') !== null")
    assert "Proven here" in opened.browser.execute_script("return document.querySelector('#panel').innerText")
    assert opened.logs() == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "int8"])
def test_it_writes_what_python_writes_and_is_proven(name: str, opened: Opened, page: Page, bundle: Bundle) -> None:
    model = open_text_model(bundle(name))
    opened.open(page(name, text="abc "))
    greedy = opened.write(tokens="40", temperature="0")
    sampled = opened.write(temperature="1.5", seed="7")
    if name != "int8":
        assert greedy == model.write("abc ", max_new_tokens=40, temperature=0.0)
        assert sampled == model.write("abc ", max_new_tokens=40, temperature=1.5, seed=7) != greedy
    check_proven(opened)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["subword", "gpt2"])
def test_it_reads_and_writes_subwords(name: str, opened: Opened, tmp_path: Path) -> None:
    tokenizer, text = tokenizer_of(name), "The cat  sat\n"
    made = randomized(DecoderLM(tokenizer.vocab_size, 64, d_model=16, num_layers=1, mixer=GRU, positions=NoPositions))
    export_bundle(made.float(), tokenizer, tmp_path / "bundle", run_id="a run", commit="a commit", seq_len=32)
    write_page([Shown(name, tmp_path / "bundle")], tmp_path / "model.html", text=text)
    opened.open(tmp_path / "model.html")
    greedy = opened.write(tokens="30", temperature="0")
    assert greedy == open_text_model(tmp_path / "bundle").write(text, max_new_tokens=30, temperature=0.0)
    opened.show("Next token")
    opened.until("return document.querySelectorAll('#heat .token').length > 1")
    shown = [token.text for token in opened.all("#heat .token:not(.after)")]
    assert len(shown) == len(tokenizer.encode(text)), shown
    check_proven(opened)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_each_view_is_shown_without_error_or_request(width: int, opened: Opened, page: Page) -> None:
    opened.open(page("attention", "gru", text="abc"), width)
    names = [tab.text for tab in opened.all("[role=tab]")]
    assert names == ["Try it", "Next token", "Look inside", "What it is", "Compare"]
    seen = {"Next token": "#heat .token", "Look inside": "#inside", "What it is": "#prove", "Compare": "#compare"}
    for name in names:
        opened.show(name)
        opened.until(f"return document.querySelector('{seen.get(name, '#write')}') !== null")
        opened.check(width)


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_stay_texts(text: str, opened: Opened, page: Page) -> None:
    first = text if text.isprintable() and len(text) < 1000 else ""
    opened.open(page("gru", text=first))
    opened.give(text)
    opened.write(tokens="5")
    opened.show("Next token")
    opened.give(text)
    opened.until("return document.querySelectorAll('#heat .token').length > 1")
    assert opened.browser.execute_script("return window.broken === undefined")
    said, asked = opened.logs()
    assert not said and not asked


@pytest.mark.parametrize("name", ["attention", "gru"])
def test_its_parts_have_all_parameters_of_the_model(name: str, shared: Shared) -> None:
    exported = shared(name)
    assert sum(count for _, count in parts_of(exported.folder)) == sum(p.numel() for p in exported.model.parameters())


def ask_for_memory(folder: Path) -> None:
    edit_graph(folder, "model.onnx", asking("ConstantOfShape", ["sizes"], 2**30))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: flip(folder / "weights.bin"), "weights.bin: its sha256 is not the manifest's"),
        (ask_for_memory, ""),
    ],
)
def test_a_spoilt_bundle_has_no_page(
    spoil: Callable[[Path], None], said: str, copy: Copy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = copy("gru")
    spoil(bundle)
    assert main(["page", str(bundle), "--out", str(tmp_path / "model.html")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no page was written" in line and said in line
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_file_that_is_there_is_kept(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "model.html").write_text("mine")
    with pytest.raises(ValueError, match=r"model\.html exists; give a new file"):
        write_page([Shown("gru", bundle("gru"))], tmp_path / "model.html")
    assert (tmp_path / "model.html").read_text() == "mine"
