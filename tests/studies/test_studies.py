"""Studies as they are typed: listed, run, gone on with, judged, shown."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import altair as alt
import pytest

from repository.source_tree import ROOT
from seqlab.cli import main
from seqlab.study import conduct
from seqlab.study.conduct import latest
from seqlab.study.find import find_study
from seqlab.study.rules import Claim, Control, Rule, Verdict, judge
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun, search
from seqlab.tracking.store import Store
from seqlab_studies import book

GAIN = Rule("gain in </script><b>BLEU", low=1.0)


class Coin(Study):
    """Its numbers differ by seed."""

    name, question, matched = "coin", "Is it fair?", "Nothing."
    why, change = "A coin has two sides.", "A third side."
    published = "Bernoulli 1713 <proves> it."
    claims = (
        Claim(
            "the gain",
            "A gains <i>much</i>.",
            "L9",
            ("a", "b"),
            GAIN,
            (Control("two", GAIN, True, "It is 2."), Control("none", GAIN, False, "It is 0.")),
        ),
    )
    shift = 2.0

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        with Path("measured").open("a") as file:
            file.write(f"{seed}\n")
        if Path("stop").exists() and seed == 2:
            raise KeyboardInterrupt
        draw = random.Random(seed).uniform(-0.1, 0.1)
        values = {"a": self.shift + draw, "b": 2 + draw, "two": 2.0, "none": 0.0}
        return Measured(values, [{"case": case, "value": value} for case, value in values.items()])

    def figure(self, claim: Claim, points: Points) -> alt.TopLevelMixin:
        chart: alt.TopLevelMixin = alt.Chart(alt.InlineData(values=points)).mark_point().encode(x="value:Q")
        return chart


def study(*typed: str, code: int = 0) -> None:
    assert main(["study", *typed]) == code


@pytest.fixture(autouse=True)
def _coin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(book.STUDIES, "coin", Coin())


@pytest.mark.slow
def test_a_study_that_is_stopped_goes_on_with_the_next_seed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("stop").touch()
    study("run", "coin", "--scale", "smoke", code=130)
    (run,) = search(Store(), experiment="coin")
    assert run.status == "KILLED" and latest(book.STUDIES["coin"]) == []
    Path("stop").unlink()
    study("run", "coin", "--scale", "smoke")
    assert Path("measured").read_text().split() == ["0", "1", "2", "2"]
    (same,) = search(Store(), experiment="coin")
    assert (same.id, same.status) == (run.id, "FINISHED")
    assert same.tags["verdict.the gain"].startswith("supported: a = 2.0") and same.tags["study.scale"] == "smoke"
    assert "\n  supported: a = 2.0" in capsys.readouterr().out

    study("run", "coin", "--scale", "smoke", "--seeds", "4")
    assert Path("measured").read_text().split() == ["0", "1", "2", "2", "3"]
    study("run", "coin", "--scale", "smoke", "--seeds", "2")
    assert "inconclusive: 2 of the 3 seeds" in capsys.readouterr().out
    assert len(search(Store(), experiment="coin")) == 1


@pytest.mark.slow
def test_another_declaration_takes_nothing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "class Coin:\n    low = 1.0\n    why = 'A coin has two sides.'\n"
    again = {
        said: 1,
        said.replace("two sides", "a side"): 1,  # what is told once it is known, how it is written, how it is drawn
        f"from seqlab.study.charts import styled\n{said}    def figure(self):\n        return styled(None)\n": 1,
        said.replace("low = 1.0", "low  = 1.0  # at least"): 1,
        said.replace("low = 1.0", "low = 0.5"): 2,
        said.replace("why", "matched"): 3,
    }
    changed = Path("changed.py")
    monkeypatch.setattr(Coin, "file", staticmethod(lambda: changed))
    for declaration, times in again.items():
        changed.write_text(declaration)
        study("run", "coin")
        assert Path("measured").read_text().split() == ["0", "1", "2"] * times
    assert len(search(Store(), experiment="coin")) == 3 and len(latest(book.STUDIES["coin"])) == 1


def test_what_it_measures_with_is_part_of_a_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coin, "file", staticmethod(lambda: Path("coin.py")))
    monkeypatch.setattr(conduct, "LIB", "lib_of_coin.")
    monkeypatch.syspath_prepend(".")
    Path("lib_of_coin").mkdir()
    texts = {
        "coin.py": "from lib_of_coin.tosses import toss\nfrom seqlab.study.rules import Rule\n",
        "lib_of_coin/tosses.py": "from lib_of_coin import hands\n",
        "lib_of_coin/hands.py": "from lib_of_coin.tosses import toss\nhand = 1\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text)
    first = conduct.declared(Coin())
    Path("lib_of_coin/hands.py").write_text(f'"""Two hands."""\n# two\n{texts["lib_of_coin/hands.py"]}')
    assert conduct.declared(Coin()) == first
    Path("lib_of_coin/hands.py").write_text(texts["lib_of_coin/hands.py"].replace("1", "2"))
    assert conduct.declared(Coin()) != first


@pytest.mark.slow
def test_what_was_measured_before_a_case_was_declared_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study("run", "coin")
    (claim,) = Coin.claims
    monkeypatch.setattr(Coin, "claims", (dataclasses.replace(claim, cases=("a", "b", "c")),))
    study("page", "coin", code=2)
    assert "study coin was not run here" in capsys.readouterr().err
    study("run", "worked-numbers")
    study("page", "worked-numbers")


class Loads(HTMLParser):
    """The addresses that a page would load, and the ids of its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.loads, self.ids = list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loads += [value for name in ("src", "href") if (value := given.get(name)) and tag != "a"]
        self.ids += [value for name, value in attrs if name == "id" and value]


@pytest.mark.slow
def test_pages_share_a_script_and_the_index_has_all_verdicts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study("run", "coin")
    monkeypatch.setattr(Coin, "shift", 0.5)
    study("run", "coin", "--scale", "smoke")
    study("run", "worked-numbers")
    said = capsys.readouterr().out
    assert "Next: seqlab study page worked-numbers" in said
    study("page", "--all", "--out", "pages")
    made = {f"{name}.{kind}" for name in ("coin", "worked-numbers") for kind in ("html", "json")}
    assert {path.name for path in Path("pages").iterdir()} == {*made, "index.html", "figures.js"}
    kept = json.loads(Path("pages/coin.json").read_text())["scales"]
    assert kept["smoke"]["verdicts"]["the gain"][0] == "depends" and len(kept["cpu"]["points"]) == 12
    page = Path("pages/coin.html").read_text()
    parser = Loads()
    parser.feed(page)
    assert parser.loads == ["figures.js"] and "figure-the-gain" in parser.ids and " " not in "".join(parser.ids)
    assert "A gains &lt;i&gt;much&lt;/i&gt;." in page and "gain in &lt;/script&gt;" in page
    assert page.count("<h2>What was published</h2><p>Bernoulli 1713 &lt;proves&gt; it.</p>") == 1
    assert "What was published" not in Path("pages/worked-numbers.html").read_text()
    assert "<b>supported</b>: it is as the claim says, at " in page and "<ul><li>a = 2" in page
    assert '<b>depends</b>: its cases differ: not all are as the claim says, at <a href="#measured">smoke' in page
    assert page.count("decides nothing") == 1, "of smoke alone"
    specs = re.search(r"const figures = (.*);\n", page)
    assert specs is not None
    figures = json.loads(specs[1])
    assert figures["specs"]["the-gain"]["datasets"] == [*figures["rows"]]
    (rows,) = figures["rows"].values()
    assert len(rows) == 4 * 3 and {row["seed"] for row in rows} == {0, 1, 2}
    assert '<select name="the-gain"><option value="">all</option><option>0</option><option>1</option>' in page
    assert "<nav>" not in page and "<dt>±</dt>" in page and "<dt>BLEU</dt>" in page and "<dt>nats</dt>" not in page
    several = Path("pages/worked-numbers.html").read_text()
    parser.feed(several)
    for claim in book.STUDIES["worked-numbers"].claims:
        assert claim.key in parser.ids and f'<a href="#{claim.key}">' in several
    assert ">L0, claim 12<br>L0: &quot;The Speed Revolution&quot;</p>" in several and ">L9</p>" in page
    index = Path("pages/index.html").read_text()
    assert index.count("<b>supported</b>") == 4 and index.count("<b>depends</b>") == 1

    study("page", "coin", "--out", "pages")
    assert Path("pages/index.html").read_text() == index
    alone = Loads()
    alone.feed(Path("pages/coin.html").read_text())
    assert alone.loads == [] and Path("pages/figures.js").read_text() in Path("pages/coin.html").read_text()


@pytest.mark.slow
def test_each_study_of_the_book_at_smoke_scale_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The frame, not the verdict; what is exact is judged."""
    study("list")
    listed = capsys.readouterr().out
    for name, each in book.STUDIES.items():
        assert name in listed
        study("run", name, "--scale", "smoke", "--seeds", "1")
        (result,) = latest(each)
        exact = {claim.key for claim in each.claims if claim.exact}
        judged = result.judgements
        assert not {judged[key].verdict for key in exact} & {Verdict.INVALID, Verdict.INCONCLUSIVE}
        assert each.arms("smoke") or Verdict.INVALID not in {found.verdict for found in judged.values()}
        assert all(each.figure(claim, result.points).to_dict() for claim in each.claims)


@pytest.mark.parametrize("name", ["price", "worked-numbers"])
def test_sums_come_out_as_the_book_has_them(name: str) -> None:
    """Their verdicts and points, which no seed or machine changes."""
    found = book.STUDIES[name].measure("cpu", 0, {})
    stored = json.loads((ROOT / f"docs/studies/{name}.json").read_text(encoding="utf-8"))["scales"]["cpu"]
    measured = {case: [value] for case, value in found.values.items()}
    judged = {claim.key: judge(claim, measured) for claim in book.STUDIES[name].claims}
    assert {key: [one.verdict.value, one.reason] for key, one in judged.items()} == stored["verdicts"]
    points = [{key: value for key, value in point.items() if key != "seed"} for point in stored["points"]]
    assert [{key: pytest.approx(value) for key, value in point.items()} for point in found.points] == points


OWN = """
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Study
from seqlab_studies.lib.lengths import reach

class Dice(Study):
    name, question, matched, why, change = "dice", "Do two dice sum to 7?", "Nothing.", "They have faces.", "More."
    rule = Rule("sum", low=6, high=8, beyond=1)
    controls = (Control("7", rule, True, "It is 7."), Control("2", rule, False, "It is 2."))
    claims = (Claim("seven", "They sum to 7.", "L9", ("mean",), rule, controls, exact=True),)

    def measure(self, scale, seed, runs):
        return Measured({"mean": 7.0, "7": 7.0, "2": 2.0}, [{"sum": 7}])

    def figure(self, claim, points):
        import altair

        return altair.Chart(altair.InlineData(values=points)).mark_point().encode(x="sum:Q")
"""


def test_a_study_of_ones_own_is_run_by_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_study.py").write_text(OWN)
    study("run", "my_study.py")
    assert "They sum to 7.\n  supported: mean = 7" in capsys.readouterr().out
    study("page", "my_study.py", "--out", "pages")
    assert capsys.readouterr().out == f"Wrote {Path('pages/dice.html')}\n"
    assert {path.name for path in Path("pages").iterdir()} == {"dice.html", "dice.json", "index.html"}
    assert "They sum to 7." in Path("pages/index.html").read_text()
    assert "<h2>Why, at cpu scale</h2><p>They have faces.</p>" in Path("pages/dice.html").read_text()
    assert json.loads(Path("pages/dice.json").read_text())["scales"]["cpu"]["values"] == [{"mean": 7, "7": 7, "2": 2}]
    study("notebook", "my_study.py", "--out", "pages")
    assert str(Path("my_study.py").resolve()) in Path("pages/dice.ipynb").read_text()
    Path("my_study.py").write_text(OWN.replace("    rule =", '    explained = "gpu"\n    rule ='))
    study("page", "my_study.py", "--out", "pages")
    assert "They have faces." not in Path("pages/dice.html").read_text(), (
        "it was not run at the scale that is explained"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no file own.py"),
        ("x = (", "own.py: '(' was never closed"),
        ("import nowhere", "own.py: No module named 'nowhere'"),
        ("x = 1", "own.py must declare one subclass of seqlab.study.study.Study, and declares 0"),
        ("from seqlab.study.study import Study\nclass A(Study): ...", "own.py must declare one subclass"),
        (
            OWN + OWN.replace("Dice", "Coins"),
            "own.py must declare one subclass of seqlab.study.study.Study, and declares 2",
        ),
        (OWN.replace('"dice"', '"order"'), "own.py: order is the name of a packaged study; give yours another"),
    ],
)
def test_a_file_that_declares_no_study_is_refused(
    content: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path("own.py").write_text(content)
    study("run", "own.py", code=2)
    assert said in capsys.readouterr().err and not Path("mlruns").exists()


def test_a_former_name_is_read() -> None:
    assert find_study("parity").name == "state-tracking"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["run"], "study run needs the NAME of a study"),
        (["run", "nought"], "there is no study nought; accepted: "),
        (["run", "coin", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["page"], "study page needs the NAME of a study or --all"),
        (["page", "coin", "--all"], "study page needs the NAME of a study or --all"),
        (["page", "coin"], "study coin was not run here"),
        (["page", "--all"], "no study was run here"),
    ],
)
def test_bad_input(typed: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    study(*typed, code=2)
    assert said in capsys.readouterr().err and not Path("mlruns").exists()
