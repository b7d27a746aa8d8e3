"""Summary table of the model: mixer, number of parameters and state size of each block."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import lightning as L
from lightning.pytorch.callbacks import ModelSummary
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.optim import Optimizer

from seqlab.attention.patterns import Causal
from seqlab.mixer import Mixer
from seqlab.nn.feed_forward import FeedForward
from seqlab.nn.mixture_of_experts import num_active_params
from seqlab.nn.norm import Norm
from seqlab.positions.base import PositionalEncoding

DEFAULT_SEQ_LEN = 1024


class ModelTable(ModelSummary):
    """Prints the summary table on stderr when a fit starts."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Builds the table before the model is distributed over processes."""
        super().setup(trainer, pl_module, stage)
        model = getattr(pl_module, "model", pl_module)
        self._table = model_table(model, getattr(pl_module, "seq_len", DEFAULT_SEQ_LEN))

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            Console(stderr=True).print(self._table)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Prints the parameter groups after a checkpoint has restored them."""
        if trainer.is_global_zero:
            Console(stderr=True).print(*map(group_table, trainer.optimizers))


def model_table(model: nn.Module, seq_len: int) -> Table:
    """Table with one row per part of the model; identical consecutive blocks share a row.

    A block is a module that has a mixer. Its state size is the number of values that one sequence stores after
    `seq_len` tokens.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("part", no_wrap=True)
    table.add_column(type(model).__name__)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column(f"state at {seq_len} tokens", justify="right")
    own = [(name, f"a vector of {p.numel()}", p.numel(), 0) for name, p in model.named_parameters(recurse=False)]
    parts = own + [
        (name, describe(part), sum(p.numel() for p in part.parameters()), _state_size(part, seq_len))
        for name, part in _parts(model)
    ]
    for (description, parameters, state), group in groupby(parts, key=lambda part: part[1:]):
        names = [name for name, *_ in group]
        count = f"{len(names)} x " if len(names) > 1 else ""
        table.add_row(_range(names), description, f"{count}{parameters:,}", f"{count}{state:,}" if state else "")
    total = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    counts = {"are trained": trained, "are used by each token": num_active_params(model)}
    note = "; ".join(f"{count:,} of the parameters {what}" for what, count in counts.items() if count != total)
    table.add_row("total", note, f"{total:,}", f"{sum(state for *_, state in parts):,}", style="bold")
    return table


def group_table(optimizer: Optimizer) -> Table:
    """Table with one row per parameter group of an optimiser."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(type(optimizer).__name__)
    for title in ("peak lr", "weight decay", "parameters"):
        table.add_column(title, justify="right", no_wrap=True)
    for group in optimizer.param_groups:
        if weights := group["params"]:
            names = group.get("param_names", [f"{len(weights)} tensors"])
            said = f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
            rate, decay = group.get("initial_lr", group["lr"]), group.get("weight_decay", 0.0)
            table.add_row(said, f"{rate:.4g}", f"{decay:g}", f"{sum(weight.numel() for weight in weights):,}")
    return table


def describe(part: nn.Module) -> str:
    """Describes a part of a model; for a block, its mixer, feed-forward and norm."""
    if isinstance(part, PositionalEncoding):
        return f"{type(part).__name__} on {part.acts_on}"
    if (mixer := _mixer(part)) is None:
        return str(part) if isinstance(part, nn.Embedding | nn.Linear) else type(part).__name__
    details = [type(mixer).__name__ + _heads(mixer)]
    for kind in (FeedForward, Norm):
        details += dict.fromkeys(type(child).__name__ for child in part.children() if isinstance(child, kind))
    place = getattr(part, "norm_place", None)
    return " · ".join(details) + (f" ({place})" if place else "")


def _parts(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        has_mixer = any(isinstance(inner, Mixer) for inner in child.modules())
        if has_mixer and _mixer(child) is None and not isinstance(child, Mixer):
            yield from _parts(child, f"{prefix}{name}.")
        elif isinstance(child, PositionalEncoding) or any(True for _ in child.parameters()):
            yield prefix + name, child


def _mixer(part: nn.Module) -> Mixer | None:
    if isinstance(part, Mixer):
        return part
    return next((child for child in part.children() if isinstance(child, Mixer)), None)


def _heads(mixer: Mixer) -> str:
    heads, kv_heads = getattr(mixer, "num_heads", None), getattr(mixer, "num_kv_heads", None)
    details = [] if heads is None else [f"{heads} heads"]
    if kv_heads not in (None, heads):
        details.append(f"{kv_heads} for keys and values")
    pattern = getattr(mixer, "pattern", None)
    if pattern is not None and not isinstance(pattern, Causal):
        details.append(type(pattern).__name__)
    details += [type(part).__name__ for part in getattr(mixer, "parts", [])]
    return f" ({', '.join(details)})" if details else ""


def _state_size(part: nn.Module, seq_len: int) -> int:
    mixer = _mixer(part)
    return mixer.state_size(seq_len) if mixer is not None and mixer.causal else 0


def _range(names: list[str]) -> str:
    """Abbreviates consecutive names: blocks.0, blocks.1, blocks.2 becomes blocks.0-2."""
    return names[0] if len(names) == 1 else f"{names[0]}-{names[-1].rpartition('.')[2]}"
