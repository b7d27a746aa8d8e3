"""Stored configs that would run a command, import a module or read a file: places x ways to name x what is named."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CANARY = "canary"
COMMAND = f"touch {CANARY}"
HARMFUL: list[tuple[dict[str, Any], str]] = [
    (
        {"command": COMMAND},
        "torch.os.system torch.nn.modules.module.torch.os.system torch.nn.functional.torch.os.system numpy.os.system "
        "lightning.pytorch.os.system os.system posix.system evil.run seqlab.nn.block.torch.os.system",
    ),
    ({"f": "evil.pt", "weights_only": False}, "torch.load torch.serialization.load"),
    ({"repo_or_dir": ".", "model": "evil", "source": "local"}, "torch.hub.load"),
    ({"args": ["fit", "--config", "evil.yaml"]}, "lightning.pytorch.cli.LightningCLI"),
    ({"save_dir": CANARY}, "lightning.pytorch.loggers.CSVLogger"),
    ({"file": "evil.pt", "allow_pickle": True}, "numpy.load"),
    ({"source": f"open('{CANARY}', 'w')"}, "builtins.eval builtins.exec"),
    ({"file": CANARY, "mode": "w"}, "builtins.open"),
    ({"name": "evil"}, "builtins.__import__ importlib.import_module seqlab.config.configs.importlib.import_module"),
    ({"args": ["touch", CANARY]}, "subprocess.run subprocess.Popen"),
    ({"path_name": "evil.py"}, "runpy.run_path"),
    ({"mod_name": "evil"}, "runpy.run_module"),
    ({"src": "evil.py", "dst": CANARY}, "shutil.copy seqlab_data.cache.os.replace"),
    ({"stream": "!!python/object/apply:os.system ['touch canary']"}, "yaml.unsafe_load"),
]
REFUSED_TOO = """
torch.utils.cpp_extension.load torch.package.PackageImporter torch.jit.load torch.fx.GraphModule torch._dynamo.config
torch.nn.Module.load_state_dict torch.nn.Embedding.from_pretrained lightning.pytorch.trainer.Trainer evil evil.Evil
lightning.pytorch.demos.boring_classes.BoringModel evil_package.inner.Evil pickle.loads pickle.Unpickler pathlib.Path
functools.partial operator.methodcaller ctypes.CDLL jsonargparse.set_parsing_settings seqlab.cli.fit.lightning
seqlab.cli.lightning_cli.SeqlabCLI seqlab.tracking.logger.RunLogger seqlab_data.TextDataModule.load_from_checkpoint
"""
TARGETS: dict[str, dict[str, Any]] = {name: options for options, names in HARMFUL for name in names.split()}
TARGETS |= {name: {} for name in REFUSED_TOO.split()}
MODEL = "model.init_args.model"
CLASSES = (
    "model",
    MODEL,
    f"{MODEL}.init_args.mixer",
    f"{MODEL}.init_args.positions",
    f"{MODEL}.init_args.block",
    f"{MODEL}.init_args.block.init_args.ffn",
    f"{MODEL}.init_args.block.init_args.norm",
    "data",
    "data.init_args.tokenizer",
    "trainer.callbacks",
    "trainer.logger",
)
"""Keys that take a class."""
OTHERS = ("trainer.strategy", "trainer.profiler", "trainer.default_root_dir", "data.init_args.path", "run_name", "lr")
"""Keys that may hold a text, but none that holds a class."""


CALLBACKS = "lightning.pytorch.callbacks"
ELSEWHERE = (
    {"class_path": f"{CALLBACKS}.ModelCheckpoint", "init_args": {"dirpath": f"../{CANARY}"}},
    {"class_path": "ModelCheckpoint", "init_args": {"dirpath": "/"}},
    {"class_path": f"{CALLBACKS}.ModelCheckpoint", "dict_kwargs": {"dirpath": f"/{CANARY}"}},
    {"class_path": f"{CALLBACKS}.ModelCheckpoint", "init_args": {"filename": f"../{CANARY}"}},
    {"class_path": f"{CALLBACKS}.OnExceptionCheckpoint", "init_args": {"dirpath": "kept/../.."}},
    {"class_path": f"{CALLBACKS}.OnExceptionCheckpoint", "init_args": {"dirpath": f"C:{CANARY}"}},
    {"class_path": f"{CALLBACKS}.OnExceptionCheckpoint", "init_args": {"dirpath": f"~/{CANARY}"}},
    {"class_path": f"{CALLBACKS}.OnExceptionCheckpoint", "init_args": {"dirpath": f"s3://{CANARY}"}},
)
"""Callbacks that would write or remove files outside the run's folder."""
FUNCTIONS = (
    "os.system",
    "torch.os.system",
    "evil.run",
    "evil",
    "print",
    "builtins.eval",
    f"{CALLBACKS}.timer.re.compile",
)
NO_PATHS = ("evil.Evil; touch canary", "evil.\nEvil", "\x1b[2Jevil.Evil", "evil.", ".evil", "evil..Evil", "evil.py", "")


def ways(target: str, options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    spec = {"class_path": target, "init_args": options}
    yield "spec", spec
    yield "json", json.dumps(spec)
    yield "yaml", yaml.safe_dump(spec)
    yield "list", [spec]
    yield "nested", {"class_path": "seqlab.recurrence.GRU", "init_args": {"num_layers": spec}}
    yield "dict_kwargs", {"class_path": target, "dict_kwargs": options}
    yield "no spec", {"class_path": {"class_path": target}, "init_args": options}
    yield "list of json", [json.dumps(spec)]
    yield "text", target
    yield "list of texts", [target]
    yield "yaml file", "evil.yaml"
    yield "json file", "evil.json"
    yield "tag", "!!python/object/apply:os.system ['touch canary']"


def hostile_configs(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """At least 200 hostile configs, each with a description."""
    targets = itertools.cycle(TARGETS.items())
    for place in (*CLASSES, *OTHERS):
        for way, value in list(ways(*next(targets))):
            if place in CLASSES or "class_path" in json.dumps(value):
                yield f"{place}: {way}", with_value(config, place, value)
    for target, options in TARGETS.items():
        for way, value in list(ways(target, options))[:9:8]:
            yield f"{target}: {way}", with_value(config, f"{MODEL}.init_args.mixer", value)
    for number, callback in enumerate(ELSEWHERE):
        yield f"elsewhere {number}", with_value(config, "trainer.callbacks", [callback])
    for path in FUNCTIONS:
        callback = {"class_path": f"{CALLBACKS}.LambdaCallback", "init_args": {"on_test_start": path}}
        yield f"function {path}", with_value(config, "trainer.callbacks", [callback])
    for path in NO_PATHS:
        yield f"no path {path!r}", with_value(config, f"{MODEL}.init_args.mixer", {"class_path": path})
    spec = {"class_path": "os.system", "init_args": {"command": COMMAND}}
    yield "dotted keys", config | {"model.class_path": "os.system"}
    yield "unknown key", config | {"optimizer": spec}
    yield "config key", config | {"config": ["evil.yaml"]}
    yield "verb key", config | {"fit": {"model": spec}}
    yield "dotted inside", with_value(config, f"{MODEL}.init_args", {"mixer.class_path": "os.system"})
    yield "path key", with_value(config, f"{MODEL}.__path__", "evil.yaml")


OWN_CALLBACK = """
from pathlib import Path

from lightning.pytorch.callbacks import Callback


class Mine(Callback):
    def on_test_start(self, trainer, pl_module):
        Path("called").touch()
"""


def write_traps(folder: Path) -> None:
    """Writes the files that the configs name. All but `mine` would leave the canary."""
    (folder / "mine.py").write_text(OWN_CALLBACK, encoding="utf-8")
    trap = f'import os\nfrom pathlib import Path\n\nfrom seqlab.recurrence import GRU\n\nPath("{CANARY}").touch()\n'
    source = trap + "\n\nclass Evil(GRU):\n    pass\n\n\ndef run(command):\n    os.system(command)\n"
    (folder / "evil.py").write_text(source, encoding="utf-8")
    (folder / "evil_package").mkdir()
    (folder / "evil_package" / "inner.py").write_text(source, encoding="utf-8")
    (folder / "hubconf.py").write_text(source, encoding="utf-8")
    (folder / "evil.pt").write_bytes(b"cposix\nsystem\n(S'" + COMMAND.encode() + b"'\ntR.")
    spec = {"class_path": "torch.os.system", "init_args": {"command": COMMAND}}
    (folder / "evil.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    (folder / "evil.json").write_text(json.dumps(spec), encoding="utf-8")


def with_value(config: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """A copy of a config that has a value at a dotted place."""
    found = copy.deepcopy(config)
    *parents, last = place.split(".")
    part = found
    for name in parents:
        part = part[name]
    part[last] = value
    return found
