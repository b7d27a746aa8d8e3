"""A checkpoint of `transformers` becomes a run: made here, with random weights and a tokenizer of a few words."""

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
from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models.pretrained import Pretrained, read_pretrained
from seqlab.trained import import_hf
from seqlab.trained.load import load_run
from seqlab.trained.text_model import open_text_model
from seqlab_data.tokenizers import PretrainedTokenizer, tokenizer_from_dict
from seqlab_export.runner.graph_runner import BundleRunner
from seqlab_export.runner.manifest import load_manifest
from seqlab_export.serving.mlflow_model import _load_pyfunc

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
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_an_imported_model_is_a_run_with_the_same_logits(
    kind: str, tmp_path: Path, inside: Callable[[Path], Seqlab]
) -> None:
    seqlab = inside(tmp_path)
    theirs = save(kind, tmp_path / "small")
    seqlab("import-hf", "small")
    run = load_run("small")
    text = "the quick fox, naïve 日本 <|endoftext|>\n"
    ids = run.tokenizer.encode(text)
    assert run.tokenizer.decode(ids) == text
    tokens = torch.tensor([ids[:32]])
    with torch.inference_mode():
        assert (run.model(tokens)[0] - theirs(tokens).logits).abs().max() < 1e-4
    seqlab("export", "small", "--out", "bundle", "--target", "ort", "--taps", "attention,state")
    manifest = load_manifest(tmp_path / "bundle")
    assert (manifest.target, manifest.in_place) == ("ort", ("0_k", "0_v", "1_k", "1_v"))
    assert manifest.taps is not None and len(manifest.taps.outputs) == 4
    of_run, of_bundle = (
        seqlab("generate", target, "--prompt", "the", "--max-new-tokens", "20").stdout for target in ("small", "bundle")
    )
    assert of_run == of_bundle


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
    assert "StoredTokenizer has no path; give that of a run's tokenizer.json, or --init_from" in refused
    base, tuned = (
        torch.load(next(tmp_path.glob(f"mlruns/{name}/*/artifacts/checkpoints/best.ckpt")), weights_only=True)
        for name in ("imported", "tiny")
    )
    for name, weight in base["state_dict"].items():
        torch.testing.assert_close(tuned["state_dict"][name], weight, rtol=0, atol=1e-7)
    refused = quick("fit", "--config", "lm/gru", *TINY, "--init_from=base", code=2).stderr
    assert "--init_from base" in refused and "not this one" in refused


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("config.json", Path.unlink, "config.json"),
        ("model.safetensors", Path.unlink, "model.safetensors"),
        ("model.safetensors", lambda path: path.write_bytes(b"torn"), "no whole safetensors file"),
        ("config.json", lambda path: path.write_text("{"), "not JSON"),
        ("config.json", lambda path: path.write_text("[]"), "holds no object"),
        ("model.safetensors.index.json", lambda path: path.write_text("{}"), "no weight_map"),
        ("config.json", lambda path: edit(path, activation_function="silu"), 'activation_function "silu"'),
        ("config.json", lambda path: edit(path, n_layer=10**7), "lack h.2."),
        (
            "tokenizer.json",
            lambda path: edit(path, pre_tokenizer=None),
            "without that file the model is imported and reads ids",
        ),
    ],
)
def test_what_cannot_be_imported_leaves_no_run(
    name: str, spoil: Callable[[Path], object], said: str, tmp_path: Path, refused: Callable[[str], None]
) -> None:
    spoil(tmp_path / "small" / name)
    refused(said)


def test_what_transformers_computes_otherwise_is_refused(
    refused: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(folder: Path) -> Pretrained:
        read = read_pretrained(folder)
        read.weights["stack.blocks.1.ffn.up_proj.bias"][3] += 0.1
        return read

    monkeypatch.setattr(import_hf, "read_pretrained", wrong)
    refused("differ from those that transformers computes by")


@pytest.mark.slow
def test_a_model_of_ids_whose_head_is_not_its_embedding(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> None:
    seqlab = inside(tmp_path)
    theirs = save("gpt2", tmp_path / "ids", tie_word_embeddings=False, eos_token_id=None)
    (tmp_path / "ids" / "tokenizer.json").unlink()
    said = seqlab("import-hf", "ids").stdout
    assert "Run ids of ids, as the folder has no tokenizer.json, its logits within " in said
    run = load_run("ids")
    assert run.tokenizer is None and run.datamodule is None
    tokens = torch.arange(32)[None]
    with torch.inference_mode():
        assert (run.model(tokens)[0] - theirs(tokens).logits).abs().max() < 1e-4
    seqlab("export", "ids", "--out", "bundle")
    bundle = BundleRunner(tmp_path / "bundle")
    prompts = [[5, 6, 7], [8]]
    assert generate(bundle, prompts, max_new_tokens=9) == generate(TorchDecoder(run.model), prompts, max_new_tokens=9)
    refused = seqlab("generate", "bundle", "--prompt", "5 six", code=2).stderr
    assert refused.endswith('a prompt is ids, such as "5 6 7"; got "six"\n')
    assert _load_pyfunc(str(tmp_path / "bundle")).predict(tokens.numpy()).shape == (1, 32, run.model.vocab_size)


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
