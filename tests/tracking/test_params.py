from __future__ import annotations

import itertools
from typing import Any

import yaml
from mlflow.utils.validation import _validate_param_name

from seqlab.tracking.params import (
    MAX_KEY_LENGTH,
    MAX_VALUE_LENGTH,
    accepted,
    block_tags,
    config_hash,
    flatten,
    short_names,
    to_yaml,
)

CONFIG: dict[str, Any] = {
    "model": {"class_path": "Task", "init_args": {"lr": 1e-3, "betas": (0.9, 0.99), "mixers": [{"heads": 4}, None]}},
    "compile": False,
    "callbacks": [],
}


def test_a_parameter_goes_by_the_shortest_end_that_no_other_has() -> None:
    block = "model.init_args.model.init_args.block.init_args"
    assert short_names(["seed", "data.init_args.seed", f"{block}.ffn.class_path", f"{block}.ffn.init_args.d_ff"]) == {
        "seed": "seed",
        "data.init_args.seed": "data.seed",
        f"{block}.ffn.class_path": "ffn",
        f"{block}.ffn.init_args.d_ff": "d_ff",
    }


def test_tags_name_the_blocks_by_their_classes() -> None:
    model = "model.init_args.model.init_args"
    params = {
        "model.class_path": "seqlab.tasks.Translation",
        "data.class_path": "seqlab_data.PairDataModule",
        "model.init_args.model.class_path": "seqlab.models.EncoderDecoder",
        f"{model}.encoder.init_args.mixer.0.class_path": "seqlab.recurrence.Mamba",
        f"{model}.encoder.init_args.mixer.1.class_path": "seqlab.attention.Attention",
        f"{model}.encoder.init_args.mixer.1.init_args.pattern.class_path": "seqlab.attention.Causal",
        f"{model}.decoder.init_args.mixer.class_path": "my_module.Mine",
        f"{model}.decoder.init_args.mixer.init_args.size": "4",
    }
    blocks = {"task": "Translation", "model": "EncoderDecoder", "mixer": "Attention, Mamba, Mine"}
    assert block_tags(params) == blocks, "and of no positions none"


def test_flat_parameters_are_the_leaves_by_dotted_path() -> None:
    assert flatten(CONFIG) == {
        "model.class_path": "Task",
        "model.init_args.lr": "0.001",
        "model.init_args.betas.0": "0.9",
        "model.init_args.betas.1": "0.99",
        "model.init_args.mixers.0.heads": "4",
        "model.init_args.mixers.1": "null",
        "compile": "false",
        "callbacks": "[]",
    }


def test_values_and_keys_are_cut_only_where_mlflow_would_refuse_them() -> None:
    longest = "x" * MAX_VALUE_LENGTH
    assert flatten({"a": longest}) == {"a": longest}
    cut = flatten({"a": longest + "y"})["a"]
    assert len(cut) == MAX_VALUE_LENGTH and cut.endswith("[cut from 6001 characters, see config.yaml]")
    (key,) = flatten({"a$b?": {"k" * 300: 1}})
    assert len(key) == MAX_KEY_LENGTH and key.startswith("a_b_.kkk")


def test_every_name_becomes_one_that_mlflow_takes_and_none_is_lost() -> None:
    names = ["".join(letters) for count in range(5) for letters in itertools.product("a/. $", repeat=count)]
    names += ["web/en/", "x" * 300, "x" * 250 + "y", "x" * 250 + "z", "\N{PILE OF POO}\n"]
    keys = flatten({name: str(place) for place, name in enumerate(names)})
    for key in keys:
        _validate_param_name(key)
        assert len(key) <= MAX_KEY_LENGTH
    assert list(keys.values()) == [str(place) for place in range(len(names))]
    assert accepted("val/loss") == "val/loss"


def test_yaml_gives_the_configuration_back() -> None:
    config = {"b": {"ä": [1, None, "x: y", 1e-3]}, "a": True}
    assert yaml.safe_load(to_yaml(config)) == config
    assert to_yaml(config).startswith("b:")


def test_the_hash_is_of_the_configuration_alone_and_of_all_of_it() -> None:
    """Tuples come back from YAML as lists."""
    same = {**CONFIG, "ckpt_path": "x.ckpt", "run_name": "a", "experiment": "b", "trainer": {"logger": {"run_id": "1"}}}
    assert config_hash(same) == config_hash({"trainer": {"logger": {"run_id": "2"}}, **dict(reversed(CONFIG.items()))})
    init_args = {**CONFIG["model"]["init_args"], "betas": [0.9, 0.99]}
    listed = {**CONFIG, "model": {**CONFIG["model"], "init_args": init_args}}
    assert config_hash(CONFIG) == config_hash(yaml.safe_load(to_yaml(listed)))
    for key in ("compile", "callbacks"):
        assert config_hash(CONFIG) != config_hash({**CONFIG, key: "changed"})
