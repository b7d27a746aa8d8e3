"""A checkpoint of `transformers` becomes a run: made here, with random weights and a tokenizer of a few words; its
texts end where the `generate` of transformers ends them, in every runtime."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import TINY, Seqlab
from runtime import programs
from seqlab.models.pretrained import Pretrained, read_pretrained, read_special_ids
from seqlab.trained import import_hf
from seqlab.trained.load import load_run
from seqlab.trained.run_text_model import open_text_model
from seqlab_data.tokenizers import PretrainedTokenizer, tokenizer_from_dict
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.serving.mlflow_model import _load_pyfunc
from web import programs as web

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")


def save(kind: str, folder: Path, **options: Any) -> Any:
    """A small model with its tokenizer, as `save_pretrained` writes them."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 20, trainer)
    shape = {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": tokenizer.get_vocab_size()} | options
    if kind == "gpt2":
        config = transformers.GPT2Config(n_positions=32, n_embd=64, n_layer=2, n_head=4, **shape)
    else:
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        width = {"hidden_size": 64, "intermediate_size": 40, "num_hidden_layers": 2}
        config = transformers.LlamaConfig(max_position_embeddings=32, **width, **heads, **shape)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return model


@pytest.fixture(scope="module", name="gpt2")
def _gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be copied."""
    folder = tmp_path_factory.mktemp("hf") / "gpt2"
    save("gpt2", folder)
    return folder


@pytest.fixture(name="refused")
def _refused(gpt2: Path, tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Callable[[str], None]:
    """Checks that the import of the folder `small` is refused in a sentence and leaves no run."""
    shutil.copytree(gpt2, tmp_path / "small")
    seqlab = inside(tmp_path)

    def check(said: str) -> None:
        (line,) = seqlab("import-hf", "small", code=2).stderr.strip().splitlines()
        assert said in line and not list(tmp_path.glob("mlruns/*/*"))

    return check


@pytest.mark.slow
def test_a_fit_begins_with_its_weights_and_its_tokenizer(quick: Seqlab, tmp_path: Path) -> None:
    save("llama", tmp_path / "small", eos_token_id=[0, 5])
    said = quick("import-hf", "small", "--run_name=base").stdout
    config = next(tmp_path.glob("mlruns/imported/*/artifacts/config.yaml"))
    assert f"fit --config {config.relative_to(tmp_path)} --init_from base" in said
    assert str(tmp_path) not in config.read_text()
    shutil.rmtree(tmp_path / "small")
    flags = [flag for flag in TINY if "d_model" not in flag and "num_layers" not in flag]
    quick("fit", "--config", str(config), *flags, "--init_from=base", "--run_name=tuned", "--model.lr=1e-9")
    tuned = load_run("tuned")
    assert tuned.tokenizer.to_dict() == load_run("base").tokenizer.to_dict()
    assert open_text_model("tuned").codec.stop_ids == (0, 5)
    data: Any = tuned.datamodule
    assert data.tokenizer.eos_ids == (0, 5)
    quick("export", "tuned", "--out=bundle")
    quick("verify", "bundle")
    quick("resume", "tuned", "--trainer.max_steps=8")
    refused = quick("fit", "--config", str(config), *flags, code=2).stderr
    assert "StoredTokenizer needs a path; give a run's tokenizer.json, or --init_from" in refused
    for name, weight in load_run("base").model.state_dict().items():
        torch.testing.assert_close(tuned.model.state_dict()[name], weight, rtol=0, atol=1e-7)
    refused = quick("fit", "--config", "lm/gru", *TINY, "--init_from=base", code=2).stderr
    assert "--init_from base" in refused and "its model differs from this one" in refused


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("config.json", Path.unlink, "config.json"),
        ("model.safetensors", Path.unlink, "model.safetensors"),
        ("model.safetensors", lambda path: path.write_bytes(b"torn"), "not a complete safetensors file"),
        ("config.json", lambda path: path.write_text("{"), "not JSON"),
        ("config.json", lambda path: path.write_text("[]"), "does not hold a JSON object"),
        ("model.safetensors.index.json", lambda path: path.write_text("{}"), "no weight_map"),
        ("config.json", lambda path: edit(path, activation_function="silu"), 'activation_function "silu"'),
        ("config.json", lambda path: edit(path, n_layer=10**7), "lack h.2."),
        (
            "tokenizer.json",
            lambda path: edit(path, pre_tokenizer=None),
            "remove that file to import a model that reads ids",
        ),
    ],
)
def test_what_cannot_be_imported_leaves_no_run(
    name: str, spoil: Callable[[Path], object], said: str, tmp_path: Path, refused: Callable[[str], None]
) -> None:
    spoil(tmp_path / "small" / name)
    refused(said)


def test_a_chat_template_is_kept_or_the_reason_is_told(
    gpt2: Path, tmp_path: Path, inside: Callable[[Path], Seqlab]
) -> None:
    shutil.copytree(gpt2, tmp_path / "small")
    seqlab = inside(tmp_path)
    template = tmp_path / "small" / "chat_template.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.end }}{% endfor %}")
    assert "It answers chats: seqlab serve small\n" in seqlab("import-hf", "small").stdout
    tokenizer = load_run("small").tokenizer
    assert isinstance(tokenizer, PretrainedTokenizer) and tokenizer.chat is not None
    assert tokenizer.chat.joints["start"] == {role: (f"{role}: ",) for role in ("system", "user", "assistant")}
    template.write_text("{% for m in messages %}{{ m.id() }}{% endfor %}")
    told = seqlab("import-hf", "small", "--run-name=other").stdout
    assert "It answers no chats, as its chat template refuses a chat: 'dict object' has no attribute 'id'\n" in told


def test_what_transformers_computes_otherwise_is_refused(
    refused: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(folder: Path) -> Pretrained:
        read = read_pretrained(folder)
        read.weights["stack.blocks.1.ffn.up_proj.bias"][3] += 0.1
        return read

    monkeypatch.setattr(import_hf, "read_pretrained", wrong)
    refused("differ from those that transformers computes by")


def test_the_tokenizer_encodes_as_the_library_does(gpt2: Path) -> None:
    file = str(gpt2 / "tokenizer.json")
    ours, theirs = PretrainedTokenizer(file=file), tokenizers.Tokenizer.from_file(file)
    for text in ("the quick brown fox", "  dogs\tjump\n", "ünïcödé 🦊", ""):
        assert ours.encode(text) == theirs.encode(text).ids
        assert ours.decode(ours.encode(text)) == text
    assert (ours.bos_id, ours.eos_id, ours.eos_ids) == (-1, -1, ())  # the file does not say
    told = PretrainedTokenizer(file=file, eos_id=[0, 7])
    assert (told.bos_id, told.eos_id, told.eos_ids) == (0, 0, (0, 7))
    again = tokenizer_from_dict(told.to_dict())
    assert (again.bos_id, again.eos_ids, again.decode([0])) == (0, (0, 7), "")
    with pytest.raises(ValueError, match="eos_id is 1000; accepted: the ids of this tokenizer, 0 to 288"):
        PretrainedTokenizer(file=file, eos_id=1000)


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
    said = seqlab("import-hf", str(folder), "--run_name", "small").stdout
    without = "Run small of ids, as the folder has no tokenizer.json, its logits within "
    assert (without in said) == (reads == "ids")
    seqlab("export", "small", "--out", "bundle")
    assert set(load_manifest(tmp_path / "bundle").stop_ids) == set(ends)
    options = ["--prompt", prompt, "--max-new-tokens", str(MOST), "--temperature", "0"]
    for target in ("small", "bundle"):
        assert seqlab("generate", target, *options).stdout.removesuffix("\n") == text
    [answer] = web.answers(tmp_path / "bundle", [{"write": prompt, "max_new_tokens": MOST, **GREEDY}])
    assert answer["text"] == text
    done = programs.run("generate", tmp_path / "bundle", *options)
    assert done.returncode == 0 and done.stdout.decode().removesuffix("\n") == text
    if reads == "ids":
        refused = seqlab("generate", "bundle", "--prompt", "5 six", code=2).stderr
        assert refused.endswith('a prompt is ids, such as "5 6 7"; got "six"\n')
        assert _load_pyfunc(str(tmp_path / "bundle")).predict([PROMPT]).shape[:2] == (1, 3)
