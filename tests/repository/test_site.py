"""`make docs` builds a site that needs no network, and a broken link ends the build."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from repository.source_tree import ROOT
from seqlab.cli import VERBS
from seqlab.config.configs import BLOCK_MODULES, config_names
from seqlab_export.reports.conformance import all_mixers

pytest.importorskip("mkdocs", reason="the site needs the extra docs")
pytestmark = pytest.mark.slow

FACES = ("seqlab", "seqlab_data", "seqlab_export")
ATTRIBUTES = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


def build(to: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, "-m", "mkdocs", "build", "--config-file", config, "--site-dir", to]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=config.parent, capture_output=True, text=True, env=quiet)


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    done = build(site)
    assert done.returncode == 0, done.stderr
    return site


class Loaded(HTMLParser):
    """The addresses that a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if name == ATTRIBUTES.get(tag) and value]


def test_what_a_page_loads_lies_beside_it(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 50
    for page in pages:
        for address in Loaded(page.read_text(encoding="utf-8")).addresses:
            if not address.startswith("data:"):
                assert (page.parent / address.partition("#")[0].partition("?")[0]).exists(), f"{page}: {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet
    assert 'fetch("http' not in (site / "site/iframe-worker.js").read_text(encoding="utf-8")


def test_every_public_class_mixer_verb_and_config_is_described(site: Path) -> None:
    described = {name for page in (site / "reference").glob("*.html") for name in _ids(page)}
    modules = [importlib.import_module(name) for name in (*BLOCK_MODULES, *FACES)]
    public = {
        f"{module.__name__}.{name}"
        for module in modules
        for name in getattr(module, "__all__", ())
        if getattr(getattr(module, name), "__doc__", None) and isinstance(getattr(module, name), type)
    }
    assert len(public) > 100 and not public - described
    assert {name.partition(",")[0].lower() for name in all_mixers()} <= _ids(site / "reference/mixers.html")
    assert {f"seqlab-{verb.name}" for verb in VERBS} <= _ids(site / "reference/commands.html")
    assert {name.replace("/", "") for name in config_names()} <= _ids(site / "reference/configs.html")


def test_pages_of_studies_pages_named_by_their_paths_and_bars_in_tables(site: Path) -> None:
    def text(name: str) -> str:
        return (site / f"{name}.html").read_text(encoding="utf-8")

    assert 'href="studies/index.html"' in text("studies") and (site / "studies/order.html").is_file()
    for page, link in (("parity", "bundle"), ("reference/seqlab_data", "../data")):
        assert f'<a href="{link}.html">docs/{link.removeprefix("../")}.md</a>' in text(page)
    for page in ("verbs", "reference/commands"):
        assert "NAME|PATH" in text(page) and r"\|" not in text(page)
    # The front page shows a model, or says how to make one.
    assert ("make gallery" in text("index")) != (site / "live/gru.html").exists()


BESIDE = [
    *("platform", "datamodules", "export", "studies", "examples", "scripts"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
]


@pytest.fixture(name="copy")
def _copy(tmp_path: Path) -> Path:
    """All that a site is made of, its pages to be changed."""
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for name in BESIDE:
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    return tmp_path


def test_a_page_of_the_gallery_is_in_the_front_page(copy: Path) -> None:
    gallery = copy / "build/gallery"
    gallery.mkdir(parents=True)
    for name in ("gru", "index"):
        (gallery / f"{name}.html").write_text(name, encoding="utf-8")
    done = build(copy / "site", copy / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    front = copy / "site/index.html"
    assert "live/gru.html" in Loaded(front.read_text(encoding="utf-8")).addresses
    assert (copy / "site/live/gru.html").read_text(encoding="utf-8") == "gru"


def test_a_broken_link_ends_the_build(copy: Path) -> None:
    broken = ("nowhere.md", "start.md#nowhere", "../nowhere.py")
    with (copy / "docs/index.md").open("a", encoding="utf-8") as page:
        page.write("".join(f"\n[there]({link})\n" for link in broken))
    done = build(copy / "site", copy / "mkdocs.yml")
    assert done.returncode != 0 and [link for link in broken if f"'{link}'" not in done.stderr] == []
    assert done.stderr.count("WARNING") == len(broken), done.stderr


def _ids(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text(encoding="utf-8")))
