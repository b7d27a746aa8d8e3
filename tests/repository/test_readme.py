"""README, docs/scale.md and the lists of verbs and blocks match the code, and links lead somewhere."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from html import escape
from pathlib import Path

import pytest
import yaml

import seqlab
from seqlab import attention, nn, positions, recurrence
from seqlab.attention import AttentionPart, Pattern
from seqlab.cli import main
from seqlab.cli.parsed_fit import check_fit
from seqlab.config.quiet import quiet
from seqlab.positions import PositionalEncoding
from seqlab_studies.book import STUDIES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERBS = (ROOT / "docs/verbs.md").read_text(encoding="utf-8")
BLOCKS = (ROOT / "docs/guides/change-one-block.md").read_text(encoding="utf-8")
FITS = re.findall(r"^\$ (seqlab fit .*)\n", README, flags=re.MULTILINE)
ROOMS = (attention, nn, positions, recurrence)


@pytest.fixture(name="books")
def _books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "one.txt").write_text("It was a dark and stormy night. " * 200, encoding="utf-8")


@pytest.mark.usefixtures("books")
@pytest.mark.parametrize("command", FITS)
def test_a_fit_that_is_shown_fits(command: str) -> None:
    """With a small model and short texts."""
    small = ["--model.model.d_model=16", "--model.model.num_layers=1", "--data.seq_len=32"]
    assert main([*shlex.split(command)[1:], *small, "--trainer.fast_dev_run=true"]) == 0


def test_fits_are_shown() -> None:
    assert len(FITS) >= 2


def test_every_verb_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    verbs = set(re.findall(r"^    ([\w-]+)(?:  +\w|$)", capsys.readouterr().out, flags=re.MULTILINE))
    listed = {
        verb for row in re.findall(r"^\| `seqlab ([\w\\|-]+)", VERBS, flags=re.MULTILINE) for verb in row.split("\\|")
    }
    assert verbs == listed


def test_every_block_is_named_and_what_is_named_is_there() -> None:
    """The guide names some of the mixers: `--model.model.mixer.help` lists them."""
    bases = (PositionalEncoding, Pattern, AttentionPart, nn.FeedForward, nn.Residual)
    assert {name for name in _blocks(*bases) if f"`{name}`" not in BLOCKS} == set()
    table = BLOCKS.partition("| kind |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", table))
    assert len(named) > 40 and named <= {name for room in ROOMS for name in room.__all__}


def _blocks(*bases: type) -> set[str]:
    """The names of the public classes below these."""
    public = {cls for room in ROOMS for name in room.__all__ if isinstance(cls := getattr(room, name), type)}
    return {cls.__name__ for cls in public if issubclass(cls, bases) and cls not in bases}


@pytest.mark.usefixtures("books")
def test_the_hybrid_stack_fits() -> None:
    (line,) = re.findall(r"^    mixer: (\[.*\])$", BLOCKS, flags=re.MULTILINE)
    config = yaml.safe_load((ROOT / "platform/seqlab/configs/lm/attention-nope.yaml").read_text(encoding="utf-8"))
    config["model"]["model"] |= {"mixer": yaml.safe_load(line), "num_layers": 4, "d_model": 16}
    Path("hybrid.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert main(["fit", "--config=hybrid.yaml", "--data.path=books/*.txt", "--trainer.fast_dev_run=true"]) == 0


def test_the_badges_are_true() -> None:
    badges = (ROOT / "docs/badges.svg").read_text(encoding="utf-8")
    texts = re.findall(r">([^<]+)</text>", badges)
    stated = dict(zip(texts[::2], texts[1::2], strict=True))
    assert stated.pop("tests") in README
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {"python": project["requires-python"].replace(">=", "≥ "), "licence": project["license"]}
    assert stated == found | {"version": seqlab.__version__}
    assert f"![Version {seqlab.__version__}, " in README


PROOF = README.partition("## Proof in numbers\n")[2].partition("\n## ")[0]
MEASURED = re.findall(r"^\| .* \| \[[^]]*\]\((\S+\.md)[^)]*\): (.*) \|$", PROOF, flags=re.MULTILINE)


@pytest.mark.parametrize(("page", "said"), MEASURED)
def test_each_number_of_the_proof_is_on_its_page(page: str, said: str) -> None:
    number = r"\d+(?:\.\d+|,\d{3})?"
    there = set(re.findall(number, (ROOT / page).read_text(encoding="utf-8")))
    given = re.findall(number, re.sub(r"\(\S*\)|float\d+|fp\d+", "", said))
    assert given and set(given) <= there


def test_the_parity_of_the_proof_is_that_of_the_matrix() -> None:
    page = (ROOT / "docs/parity.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines()]
    exact = [row for row in rows if len(row) > 11 and row[2] == "fp32" and row[3].startswith("onnxruntime")]
    assert f"{max(int(row[5].removesuffix('%')) for row in exact)}% of" in PROOF
    assert {row[10] for row in exact} == {"", "the same"} and len(MEASURED) == 5


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|\$ )make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_links_lead_somewhere() -> None:
    """The pages that only the site has, of which docs/index.md tells, are in the site's own check."""
    beside = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")]
    for page in [*beside, *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        pictures = [(link, "") for link in re.findall(r"(?:src|srcset)=\"([^\"]*)\"", text)]
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", text) + pictures:
            if "://" in link or re.search(r"(^|/)reference/", link):
                continue
            there = page.parent / link if link else page
            assert there.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in _anchors(there), f"{page.name} links to {link}{anchor}"


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub and the site make of headings; of an HTML page, its ids."""
    if page.suffix == ".html":
        return {f"#{name}" for name in re.findall(r'\bid="?([\w-]+)', page.read_text(encoding="utf-8"))}
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


SCALE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
SECTIONS = [
    SCALE.partition(f"## {name}\n")[2].partition("\n## ")[0] for name in ("From laptop to cluster", "When a rank hangs")
]
SHOWN = re.findall(r"^\$ (.*?seqlab (?:fit|submit) .*?)(?:;.*)?$", "".join(SECTIONS), flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("command", SHOWN)
def test_a_fit_that_is_shown_is_taken(command: str) -> None:
    start, verb, options = re.split(r"seqlab (fit|submit) ", command)
    assert re.fullmatch(r"(torchrun (--\w+ \S+ )+-m |until )?", start)
    if verb == "submit":
        assert main([verb, *shlex.split(options)]) == 0
    else:
        quiet()
        check_fit(shlex.split(options))


def test_fits_of_many_processes_are_shown() -> None:
    assert len(SHOWN) >= 5 and any("--resume auto" in command for command in SHOWN)


SCRIPT = runpy.run_path(str(ROOT / "scripts/verdicts.py"))


def test_the_tables_of_verdicts_are_made_of_the_records() -> None:
    """Made anew by `python scripts/verdicts.py`."""
    for path, made in SCRIPT["pages"]().items():
        assert made == path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_in_docs_with_the_verdict_of_each_claim(name: str) -> None:
    found, study = SCRIPT["verdicts"](STUDIES[name])["cpu"], STUDIES[name]
    assert list(found) == [claim.key for claim in study.claims], "the page is of another declaration"
    said = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` | {claim.says} | {found[claim.key]} | " in said for claim in study.claims)
    page = (ROOT / "docs/studies" / f"{name}.html").read_text(encoding="utf-8")
    index = (ROOT / "docs/studies/index.html").read_text(encoding="utf-8")
    assert escape(study.question) in page and index.count(f'href="{name}.html"') == len(study.claims)
