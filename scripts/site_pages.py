"""MkDocs' hook for the site of docs/: pages generated from the code, and links that leave docs/.

Each build generates the pages of CONTRIBUTING and CHANGELOG, of the files that pages link to, and those of `nav`
under `reference/`. The pages of `make gallery`, if there are any, are in `live/`, and the front page shows one.
"""

from __future__ import annotations

import argparse
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import seqlab.cli
from seqlab.cli.fit import LIGHTNING
from seqlab.config.configs import PACKAGED, config_names
from seqlab.config.options import options
from seqlab.config.short_help import TRAINER
from site_catalogue import catalogue
from site_drawing import drawing

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
IN_TABLE = re.compile(r"^\|.*", re.MULTILINE)
CODE = re.compile("`[^`\n]+`")
NAMED = re.compile(r"(?<![\w/\"'])docs/([\w-]+\.md)\b")
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files outside docs/, and their pages."""
GALLERY = ROOT / "build/gallery"
LIVE = re.compile("<!-- live -->\n.*?<!-- live -->\n", re.DOTALL)
"""Part of the front page that is shown without a gallery."""
MODEL = """A GRU fitted to the English text of CPython's documentation runs here, in your browser. Let it
write, see what it thinks comes next, look inside. [Other models](live/index.html), side by side too, have a page each.

<iframe class="live" src="live/gru.html" title="A model that runs in this page" loading="lazy"></iframe>
"""


def on_config(config: MkDocsConfig) -> None:
    fence = {"name": "mermaid", "class": "drawing", "format": drawing}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    made = {"reference/commands.md": commands(), "reference/configs.md": configs(), "reference/mixers.md": catalogue()}
    for module in re.findall(r"'reference/(seqlab[\w.]*)\.md'", str(config.nav)):
        made[f"reference/{module}.md"] = f"# {module}\n\n::: {module}\n"
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        made[PAGES[name]] = (ROOT / name).read_text(encoding="utf-8")
    texts = [(Path("docs", file.src_uri), file.content_string) for file in files.documentation_pages()]
    texts += [(Path(name), made[PAGES[name]]) for name in ("CONTRIBUTING.md", "CHANGELOG.md")]
    for source, text in texts:
        for path in filter(_is_shown, _linked(source, text)):
            made[_page_of(path)] = code(path)
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    for live in _gallery():
        files.append(File.generated(config, f"live/{live.name}", abs_src_path=str(live)))
    return files


def _gallery() -> list[Path]:
    """The pages of models if all were made, recognised by their index, which is made last."""
    return sorted(GALLERY.glob("*.html")) if (GALLERY / "index.html").is_file() else []


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirects links out of docs/ to the pages of their targets, and inserts a live model if there is one.
    In a table's code GitHub needs a backslash before a bar, which Python's Markdown would show."""
    uri = page.file.src_uri
    if _gallery():
        markdown = LIVE.sub(MODEL, markdown)
    source = next((Path(name) for name, of in PAGES.items() if of == uri and name != "README.md"), Path("docs", uri))

    def led(link: re.Match[str]) -> str:
        path = _path(source, link[1])
        if path is None:
            return link[0]
        there = path.relative_to("docs").as_posix() if path.is_relative_to("docs") else _page_of(path)
        return f"]({posixpath.relpath(there, posixpath.dirname(uri))}{link[2] or ''})"

    markdown = IN_TABLE.sub(lambda row: CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), markdown)
    return LINK.sub(led, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links the pages that a text names by their paths in the repository."""

    def linked(name: re.Match[str]) -> str:
        there = files.get_file_from_path(name[1])
        return f'<a href="{there.url_relative_to(page.file)}">{name[0]}</a>' if there else name[0]

    return NAMED.sub(linked, html)


def _path(source: Path, link: str) -> Path | None:
    """Target of a link in a file, by its path in the repository; None if there is none."""
    there = Path(posixpath.normpath(posixpath.join(source.parent, link)))
    return there if (ROOT / there).exists() else None


def _linked(source: Path, text: str) -> set[Path]:
    return {path for link, _ in LINK.findall(text) if (path := _path(source, link))}


def _is_shown(path: Path) -> bool:
    return not path.is_relative_to("docs") and str(path) not in PAGES


def _page_of(path: Path) -> str:
    return PAGES.get(str(path), f"source/{path}.md")


def code(path: Path) -> str:
    """A page of a file, or of the files of a folder."""
    shown = sorted((ROOT / path).iterdir()) if (ROOT / path).is_dir() else [ROOT / path]
    blocks = [f"# {path}"]
    for file in filter(Path.is_file, shown):
        if file.suffix == ".ipynb":
            blocks += [f"## {file.name}", *_cells(file)]
            continue
        language = {".py": "python", ".cc": "cpp", ".txt": "cmake"}[file.suffix]
        blocks.append(f"## {file.name}\n\n~~~~{language}\n{file.read_text(encoding='utf-8')}~~~~")
    return "\n\n".join(blocks) + "\n"


def _cells(notebook: Path) -> Iterator[str]:
    """Texts and code of a notebook, with its headings below the page's."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        yield (
            f"~~~~python\n{text}\n~~~~"
            if cell["cell_type"] == "code"
            else re.sub("^#", "###", text, flags=re.MULTILINE)
        )


def commands() -> str:
    """Every verb and its options, from the parser."""
    intro = (
        "A RUN is an id, a unique prefix of one, a name or a checkpoint. Bad input is reported in one sentence, with "
        "exit code 2; `seqlab VERB --help` prints the text below."
    )
    return f"# Commands\n\n{intro}\n\n" + "\n".join(line for verb in _verbs() for line in _verb(*verb))


def _verbs() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    [verbs] = [action for action in seqlab.cli._parser()._actions if isinstance(action.choices, dict)]
    yield from verbs.choices.items()


def _verb(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## seqlab {name}\n\n{parser.description}\n"
    rows = list(_lightning(name) if name in LIGHTNING else _own(parser))
    if rows:
        yield "| option | what it does |\n|---|---|"
        yield from (f"| `{_cell(what)}` | {_cell(does)} |" for what, does in rows)
    if name in LIGHTNING:
        yield (
            "\nThe rest are the options of the classes that a config chooses "
            f"(`seqlab {name} --config lm/gru --help`) and of Lightning's Trainer (`--help all`)."
        )
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _own(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            taken = parser._get_formatter()._format_args(action, (action.dest if not action.choices else "").upper())
            choices = "|".join(map(str, action.choices or ())) if action.metavar is None else ""
            name = " ".join([", ".join(action.option_strings), choices or taken])
            yield name.strip(), (action.help or "") % {"default": action.default}


def _lightning(name: str) -> Iterator[tuple[str, str]]:
    ours = options(name) if name == "fit" else options(name)[len(options("fit")) :]
    for option in ours:
        default = "" if option.default is None else f"; default: {str(option.default).replace('False', 'false')}"
        yield f"--{option.name}", option.help.rstrip(".") + default
    for key, text in TRAINER.items():
        yield f"--trainer.{key}", text


def configs() -> str:
    """Every packaged config: its command, its description, and the YAML."""
    parts = ["# Configs\n\n`--config NAME` takes these, or a file of your own; `seqlab configs NAME` prints one.\n"]
    for name in config_names():
        command, what, *_ = text = (PACKAGED / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
        yaml = "\n".join(f"    {line}".rstrip() for line in text)
        parts.append(f"## {name}\n\n{what.removeprefix('# ')}.\n")
        parts.append(f"```console\n$ {command.removeprefix('# ')}\n```\n")
        parts.append(f'??? note "{name}.yaml"\n\n    ```yaml\n{yaml}\n    ```\n')
    return "\n".join(parts)
