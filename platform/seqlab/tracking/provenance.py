"""Provenance of a run: code, packages, machine and process."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import psutil

MAIN_PACKAGES = (
    "seqlab",
    "torch",
    "lightning",
    "torchmetrics",
    "mlflow",
    "numpy",
    "onnx",
    "onnxruntime-gpu",
    "onnxruntime",
)
NAME_OR_VERSION = re.compile(r"^(Name|Version): (.+)$", re.MULTILINE)
TAGS = "SEQLAB_TAGS"
"""Environment variable with additional tags for the run, as JSON."""
START_TOLERANCE = 2.0
"""Tolerance in seconds. A process start is computed from the boot time, which shifts when the clock is set."""


def process_tags() -> dict[str, str]:
    """Tags that identify this process, so that others can check whether it is still running."""
    process = psutil.Process()
    return {
        "host": socket.gethostname(),
        "host.id": host_id(),
        "process.id": str(process.pid),
        "process.start": repr(process.create_time()),
    }


def given_tags() -> dict[str, str]:
    """Tags for the run, set by the parent process."""
    return dict(json.loads(os.environ.get(TAGS, "{}")))


def is_gone(tags: dict[str, str]) -> bool:
    """True if the process of this host with these `process_tags` has ended; False if tags are missing."""
    try:
        process = psutil.Process(int(tags["process.id"]))
        same = abs(process.create_time() - float(tags["process.start"])) < START_TOLERANCE
        return not same or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except (KeyError, ValueError, OverflowError):  # missing or invalid tags
        return False


@cache
def host_id() -> str:
    """Host id: a hash of the host name and, where available, the machine id, because host names may repeat."""
    machine = Path("/etc/machine-id")
    text = socket.gethostname() + (machine.read_text() if machine.exists() else "")
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def provenance() -> dict[str, str]:
    """Tags for the code, command, packages and hardware of this process."""
    versions = package_versions()
    command = _command()
    return {
        **_git_tags("git", Path.cwd()),
        **_git_tags("seqlab.git", Path(__file__).parent),
        "command": command,
        "mlflow.source.name": " ".join(command.split(maxsplit=2)[:2]),  # MLflow shows only the last path component
        "mlflow.source.type": "LOCAL",
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{f"package.{name}": versions[name] for name in MAIN_PACKAGES if name in versions},
        **_hardware(),
    }


def environment() -> dict[str, str]:
    """Machine and software versions for a bug report."""
    import numpy as np
    import torch
    from sqlalchemy import make_url

    from seqlab.tracking.store import Store

    versions, hardware = package_versions(), _hardware()
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    store = Store()
    return {
        **{name: versions[name] for name in MAIN_PACKAGES if name in versions},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": f"{hardware['hardware.cpu']}, {hardware['hardware.cores']} cores",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "memory": f"{hardware['hardware.memory_gb']} GB",
        "BLAS": f"torch: {'MKL' if torch._C.has_mkl else 'no MKL'}; numpy: {blas['name']}",
        "threads": hardware["hardware.threads"],
        "devices": hardware["hardware.gpus"],
        "store": make_url(store.uri).render_as_string() + ("" if store.remote or store.exists else " (not there yet)"),
    }


def description() -> dict[str, str]:
    """MLflow's note on a run: the command that started it. Users may edit the note, so it is written only once."""
    return {"mlflow.note.content": "```\n{}\n```".format(_command().replace(" --", " \\\n  --"))}


def _command() -> str:
    program = Path(sys.argv[0]).name
    return shlex.join(["seqlab" if program == "__main__.py" else program, *sys.argv[1:]])


@cache
def package_versions() -> dict[str, str]:
    """Version of every installed package, by name."""
    # Faster than the standard library, which parses each package's whole description.
    texts = [package.read_text("METADATA") or package.read_text("PKG-INFO") or "" for package in distributions()]
    heads = [dict(NAME_OR_VERSION.findall(text.partition("\n\n")[0])) for text in texts]
    return dict(sorted((head["Name"], head["Version"]) for head in heads if len(head) == 2))


def _hardware() -> dict[str, str]:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "hardware.cpu": cpu_model(),
        "hardware.cores": str(os.cpu_count()),
        "hardware.memory_gb": f"{psutil.virtual_memory().total / 1e9:.0f}",
        "hardware.gpus": ", ".join(gpus) or "none",
        "hardware.threads": str(torch.get_num_threads()),
        "hardware.tf32": str(torch.backends.cudnn.allow_tf32).lower(),
    }


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git_tags(prefix: str, folder: Path) -> dict[str, str]:
    """Commit and dirty flag (tracked files only) of the checkout that contains a folder; empty outside a checkout."""
    commit = git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    changes = git(folder, "status", "--porcelain", "--untracked-files=no")
    dirty = "unknown" if changes is None else str(bool(changes)).lower()
    tags = {f"{prefix}.commit": commit, f"{prefix}.dirty": dirty}
    return tags | ({"mlflow.source.git.commit": commit} if prefix == "git" else {})


def git(folder: Path, *args: str) -> str | None:
    """Runs git in a folder and returns its output; None if it fails, as outside a checkout.

    Programs named in the checkout's config and hooks are not run.
    """
    settings = {"core.fsmonitor": "false", "core.hooksPath": os.devnull, "diff.ignoreSubmodules": "dirty"}
    try:
        filters = _git(folder, settings, "config", "-z", "--name-only", "--get-regexp", r"^filter\.")
        names = {name.rpartition(".")[0] for name in filters.stdout.split("\0") if name}
        for name in names:
            settings |= {f"{name}.clean": "", f"{name}.process": "", f"{name}.required": "false"}
        result = _git(folder, settings, *args)
        result.check_returncode()
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _git(folder: Path, settings: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    given = {"GIT_CONFIG_COUNT": str(len(settings)), "GIT_OPTIONAL_LOCKS": "0"}
    for number, (name, value) in enumerate(settings.items()):
        given |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    command = ["git", "-C", str(folder), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False, env=os.environ | given)
