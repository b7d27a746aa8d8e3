"""Texts of an imported model end where the `generate` of transformers ends them, in every runtime."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import Seqlab
from cli.test_import_hf import save
from runtime import programs
from seqlab.models.pretrained import read_special_ids
from seqlab_export.runner.manifest import load_manifest
from web import programs as web

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

PROMPT = [5, 6, 7]
MOST = 20
GREEDY = {"temperature": 0, "top_k": None, "top_p": 1, "min_p": 0, "seed": 0, "penalty": 1, "ngram": None}


def written(folder: Path) -> list[int]:
    """Tokens that transformers writes after the prompt, by the folder's settings."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.inference_mode():
        tokens = model.generate(torch.tensor([PROMPT]), max_new_tokens=MOST, do_sample=False)
    ids: list[int] = tokens[0, len(PROMPT) :].tolist()
    return ids


def tell(folder: Path, *, config: dict[str, Any], generation: dict[str, Any] | None) -> None:
    """Writes the eos settings of the two files; the second may be missing."""
    stated = json.loads((folder / "config.json").read_text())
    stated.pop("eos_token_id", None)
    (folder / "config.json").write_text(json.dumps(stated | config))
    path = folder / "generation_config.json"
    path.unlink(missing_ok=True)
    if generation is not None:
        path.write_text(json.dumps({"transformers_version": "5.0.0"} | generation))


def ends_of(text: list[int]) -> list[int]:
    """Two tokens that occur late in a text for the first time."""
    first = [place for place, token in enumerate(text) if place > 1 and text.index(token) == place]
    assert len(first) > 1
    return [text[first[0]], text[first[-1]]]


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose greedy text has many different tokens."""
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("imported") / "small"
    model = save("gpt2", folder, tie_word_embeddings=False)
    torch.nn.init.normal_(model.transformer.wpe.weight, std=3.0)  # each position has something else to say
    model.save_pretrained(folder)
    return folder


def test_eos_is_read_where_transformers_reads_it(folder: Path) -> None:
    tell(folder, config={}, generation={})
    whole = written(folder)
    assert len(whole) == MOST
    early, late = ends_of(whole)
    ends = {token: whole[: whole.index(token) + 1] for token in (early, late)}
    told: list[tuple[dict[str, Any], dict[str, Any] | None, list[int]]] = [
        ({"eos_token_id": late}, {"eos_token_id": early}, ends[early]),
        ({"eos_token_id": early}, {"eos_token_id": late}, ends[late]),
        ({"eos_token_id": late}, {"eos_token_id": [late, early]}, ends[early]),
        ({"eos_token_id": early}, {}, whole),
        ({"eos_token_id": early}, {"eos_token_id": None}, whole),
        ({"eos_token_id": early}, None, ends[early]),
        ({"eos_token_id": [late, early]}, None, ends[early]),
        ({"eos_token_id": None}, None, whole),
        ({}, None, whole),
    ]
    for config, generation, expected in told:
        tell(folder, config=config, generation=generation)
        assert written(folder) == expected, (config, generation)
        eos = read_special_ids(folder, 300).eos
        ours = next((whole[: place + 1] for place, token in enumerate(whole) if token in eos), whole)
        assert ours == expected, (config, generation, eos)


@pytest.mark.parametrize("eos", ["2", 1.5, True, [1, "2"], {"id": 1}])
def test_eos_that_is_no_id_is_refused(eos: Any, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    with pytest.raises(ValueError, match=r"generation_config\.json has eos_token_id .*; accepted: a whole number, a"):
        read_special_ids(tmp_path, 300)


def test_eos_outside_the_vocabulary_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [-1, 300, 299]}))
    assert read_special_ids(tmp_path, 300).eos == (299,)


@pytest.mark.slow
@pytest.mark.parametrize("reads", ["text", "ids"])
def test_every_runtime_stops_there(reads: str, folder: Path, tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    seqlab = inside(tmp_path)
    tell(folder, config={}, generation={})
    ends = ends_of(written(folder))[::-1]
    tell(folder, config={}, generation={"eos_token_id": ends})
    expected = written(folder)
    assert 1 < len(expected) < MOST
    prompt, text = "5 6 7", " ".join(map(str, expected))
    if reads == "text":
        library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
        prompt, text = library.decode(PROMPT), library.decode(expected)
        assert library.encode(prompt).ids == PROMPT
    else:
        (folder / "tokenizer.json").unlink()
    seqlab("import-hf", str(folder), "--run_name", "small")
    seqlab("export", "small", "--out", "bundle")
    assert set(load_manifest(tmp_path / "bundle").stop_ids) == set(ends)
    options = ["--prompt", prompt, "--max-new-tokens", str(MOST), "--temperature", "0"]
    for target in ("small", "bundle"):
        assert seqlab("generate", target, *options).stdout.removesuffix("\n") == text
    [answer] = web.answers(tmp_path / "bundle", [{"write": prompt, "max_new_tokens": MOST, **GREEDY}])
    assert answer["text"] == text
    if reads == "ids":  # The C++ runtime has no byte-level BPE.
        done = programs.run("generate", tmp_path / "bundle", *options)
        assert done.returncode == 0 and done.stdout.decode().removesuffix("\n") == text
