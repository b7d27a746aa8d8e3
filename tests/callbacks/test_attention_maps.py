"""Attention maps of a fit: the mixers' own weights between real tokens, named, and a figure of them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqlab.attention import AdditiveAttention, Attention, Bidirectional
from seqlab.models import Classifier, DecoderLM, Encoder, EncoderDecoder
from seqlab.positions import NoPositions
from seqlab.probes.attention_maps import AttentionMaps
from seqlab.recurrence import GRU
from seqlab.tasks import Classification, LanguageModeling, Translation
from seqlab_data import LabelledTextDataModule, ParallelTextDataModule, TextDataModule
from seqlab_data.tokenizers import CharTokenizer, WordTokenizer

BOTH_WAYS = partial(Encoder, d_model=8, num_layers=1, mixer=partial(Attention, num_heads=2, pattern=Bidirectional))


def stored(task: Any, data: Any) -> dict[str, str]:
    """Texts that the callback logs, by name."""
    texts: dict[str, str] = {}
    logger = SimpleNamespace(log_text=lambda text, name: texts.update({name: text}))
    trainer: Any = SimpleNamespace(logger=logger, is_global_zero=True, datamodule=data)
    data.setup("fit")
    AttentionMaps().on_fit_end(trainer, task)
    return texts


def check_rows(maps: dict[str, Any], sizes: dict[str, tuple[int, ...]]) -> None:
    assert {name: tuple(torch.tensor(weights).shape) for name, weights in maps.items()} == sizes
    for weights in maps.values():
        torch.testing.assert_close(torch.tensor(weights).sum(-1), torch.ones(torch.tensor(weights).shape[:-1]))


@pytest.mark.parametrize(
    ("mixer", "own"),
    [
        (partial(Attention, num_heads=2), {"stack.blocks.0.mixer": (2, 3, 3), "stack.blocks.1.mixer": (4, 3, 5)}),
        (AdditiveAttention, {"stack.blocks.0.mixer": (1, 3, 5)}),
    ],
)
def test_of_a_translation(mixer: Any, own: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a b c $\tx y\nb\tz z z z\n")
    words: dict[str, Any] = {"source_tokenizer": WordTokenizer, "target_tokenizer": WordTokenizer, "max_len": 8}
    data = ParallelTextDataModule(str(pairs), val=str(pairs), **words)
    build = partial(EncoderDecoder, encoder=BOTH_WAYS, num_layers=1, mixer=mixer)
    texts = stored(Translation(data.vocab_size, data.target_vocab_size, data.seq_len, model=build), data)
    assert set(texts) == {f"attention/{row}.{kind}" for row in (0, 1) for kind in ("json", "svg")}
    content, figure = json.loads(texts["attention/0.json"]), texts["attention/0.svg"]
    assert content["source"] == ["a", "b", "c", "$", "<eos>"] and content["tokens"] == ["<bos>", "x", "y"]
    check_rows(content["maps"], {"encoder.stack.blocks.0.mixer": (2, 5, 5), **own})
    colour_bar = 1
    assert figure.count("<image") == colour_bar + 2 + sum(size[0] for size in own.values())
    assert "attention weight" in figure
    assert ">encoder.stack.blocks.0.mixer</" in figure, "a line of its own: maps may be narrow"


def test_of_a_language_model_they_are_the_mixers_own(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question. " * 9)
    data = TextDataModule(str(path), tokenizer=CharTokenizer, seq_len=8, batch_size=2, cache_dir=str(tmp_path))
    mixers: list[Any] = [partial(Attention, num_heads=2), GRU]
    build = partial(DecoderLM, d_model=8, num_layers=2, mixer=mixers, positions=NoPositions)
    task = LanguageModeling(data.vocab_size, 8, model=build)
    content = json.loads(stored(task, data)["attention/1.json"])
    check_rows(content["maps"], {"stack.blocks.0.mixer": (2, 8, 8)})
    tokens = next(iter(data.val_dataloader())).tokens
    model: Any = task.model
    block = model.stack.blocks[0]
    x = model.positions.embed(model.embedding(tokens), torch.arange(8)[None])
    weights = block.mixer.attention_weights(block.mixer_norm(x))
    torch.testing.assert_close(torch.tensor(content["maps"]["stack.blocks.0.mixer"]), weights[1].detach())
    assert "".join(content["tokens"]).removeprefix("<bos>") == data.tokenizer.decode(tokens[1].tolist())
    assert content["source"] == []


@pytest.mark.parametrize("pool", ["mean", "class"])
def test_of_a_classifier_only_real_tokens_are_shown(pool: Any, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("1 a b c\n0 b\n")
    data = LabelledTextDataModule(str(path), val=str(path), test=str(path), tokenizer=WordTokenizer, max_len=8)
    task = Classification(2, 8, vocab_size=data.vocab_size, model=partial(Classifier, encoder=BOTH_WAYS, pool=pool))
    texts = stored(task, data)
    for row, words in enumerate((["a", "b", "c"], ["b"])):
        content = json.loads(texts[f"attention/{row}.json"])
        assert content["source"] == content["tokens"] == (["<class>", *words] if pool == "class" else words)
        size = len(content["source"])
        check_rows(content["maps"], {"encoder.stack.blocks.0.mixer": (2, size, size)})
