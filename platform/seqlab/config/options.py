"""Options of fit and the other Lightning verbs: seqlab's own as data, so that help does not import Lightning, and
checks of options that Lightning accepts silently or answers with a traceback."""

from __future__ import annotations

from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from seqlab.config.lora import Lora

if TYPE_CHECKING:
    import lightning as L


Budget = Literal["params", "active_params", "flops", "state", "seconds"]


class FitOption(NamedTuple):
    name: str
    type: Any
    default: Any
    help: str


OPTIONS = (
    FitOption("experiment", str, "seqlab", "MLflow experiment of the run."),
    FitOption("run_name", str | None, None, "Name of the run; None = a generated one."),
    FitOption("resume", Literal["auto"] | None, None, "auto: continue this job's run, if any."),
    FitOption("init_from", str | None, None, "Run to take initial weights from."),
    FitOption("encoder_from", str | None, None, "Run to take initial encoder weights from."),
    FitOption("freeze_encoder", bool, False, "Freeze the encoder weights."),
    FitOption("word_vectors", str | None, None, "Text file of pretrained word vectors."),
    FitOption("match", Budget | None, None, "Budget for which the width is solved."),
    FitOption("to", float | None, None, "Target value of the --match budget."),
    FitOption("match_by", str, "d_model", "Model option that is solved for."),
    FitOption("mup", bool | int, False, "muP from this base width; true = 64."),
    FitOption("lora", Lora | None, None, "Low-rank updates; see --lora.help."),
    FitOption("compile", bool, False, "Apply torch.compile to the inner model."),
    FitOption("tp", int | None, None, "Tensor-parallel ranks (tp, fsdp2+tp)."),
    FitOption("skip_spikes", float | None, None, "Skip steps above X times the median gradient."),
    FitOption("ema", float | None, None, "Decay of averaged weights, e.g. 0.999."),
    FitOption("tokens_per_step", int | None, None, "Accumulate to this many tokens a step."),
    FitOption("noise_scale", bool, False, "Log the gradient noise scale."),
    FitOption("checkpoint_activations", bool, False, "Recompute activations to save memory."),
    FitOption("checkpoint_every", int, 500, "Steps between writes of last.ckpt."),
    FitOption("checkpoint_minutes", float, 5.0, "Most minutes between writes of last.ckpt."),
    FitOption("timeout", float | None, None, "Seconds that ranks wait; None = 1800."),
    FitOption("checkpoint_async", bool, False, "Write checkpoints in the background."),
)
PREDICT = (FitOption("out", str, "predictions.jsonl", "File for the predictions."),)


def options(verb: str) -> tuple[FitOption, ...]:
    """Options of a verb."""
    return OPTIONS + PREDICT if verb == "predict" else OPTIONS


def wants_help(args: list[str]) -> bool:
    """True if a command line requests the short help; `--help all` requests jsonargparse's."""
    asked = [place for place, arg in enumerate(args) if arg in ("-h", "--help") or arg.split("=")[0].endswith(".help")]
    return bool(asked) and args[asked[0] + 1 : asked[0] + 2] != ["all"]


LEAST = {
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "gradient_clip_val": 0,
    "log_every_n_steps": 0,
    "max_epochs": -1,
    "max_steps": -1,
    "min_epochs": 0,
    "min_steps": 0,
    "num_nodes": 1,
    "num_sanity_val_steps": -1,
    "reload_dataloaders_every_n_epochs": 0,
}

COUNTS_OR_SHARES = ("train", "val", "test", "predict")
"""Splits whose `limit_SPLIT_batches` is a number of batches (an int, 1) or a share of them (a float, 1.0)."""


def numbers_before_shares() -> None:
    """Makes the command line read `limit_val_batches=1` as one batch, whatever was imported before Lightning.

    The types of a union are tried in order, and `typing` caches equal unions: `Optional[Union[float, int]]` from
    another module would replace Lightning's `Optional[Union[int, float]]`.
    """
    import lightning as L

    types = L.Trainer.__init__.__annotations__
    types.update({f"limit_{split}_batches": int | float | None for split in COUNTS_OR_SHARES})


def check_trainer(given: Any) -> None:
    """Checks trainer options that Lightning does not check.

    Raises:
        ValueError: a number is below its minimum, or a precision needs a package that is not installed.
    """
    for name, least in LEAST.items():
        value = given.get(name)
        if value is not None and not value >= least:
            raise ValueError(f"trainer.{name} must be at least {least}, got {value}")
    if str(given.get("precision")).startswith("transformer-engine") and find_spec("transformer_engine") is None:
        raise ValueError(
            f"trainer.precision {given.precision} needs the package transformer_engine, which is not installed; "
            "`pip install transformer_engine[pytorch]` installs it where there is a CUDA device"
        )


def check_precision(trainer: L.Trainer, requested: str | int | None) -> None:
    """Checks that the trainer uses the requested precision.

    Raises:
        ValueError: it does not, as when Lightning replaces 16-mixed by bf16-mixed on a CPU.
    """
    from lightning.fabric.connector import _convert_precision_to_unified_args

    if requested is not None and _convert_precision_to_unified_args(requested) != trainer.precision:  # type: ignore[arg-type]
        device = type(trainer.accelerator).__name__.removesuffix("Accelerator")
        raise ValueError(
            f"trainer.precision is {requested}, which a {device} does not have; give {trainer.precision} or 32-true"
        )


def tell_whole_numbers(given: Any) -> None:
    """Sets the data option `whole_numbers` where the task predicts numbers and the user has not set it. Otherwise
    integer targets might be read as classes.

    Args:
        given: parsed options; those of the data module are modified.
    """
    task = resolve_name(given.model.class_path)
    data = given.get("data.init_args") or {}
    if hasattr(task, "whole_numbers") and "whole_numbers" in data and data["whole_numbers"] is None:
        data["whole_numbers"] = task.whole_numbers


def check_tokenizers(datamodule: L.LightningDataModule) -> None:
    """Checks that a data module's tokenizers can be stored with a run.

    Raises:
        ValueError: a tokenizer is neither None nor a `seqlab_data.tokenizers.Tokenizer`.
    """
    from seqlab_data.tokenizers import Tokenizer

    for name in ("tokenizer", "source_tokenizer"):
        found = getattr(datamodule, name, None)
        if found is not None and not isinstance(found, Tokenizer):
            raise ValueError(
                f"the data module {type(datamodule).__name__} has a {name} that is a {type(found).__name__}; give a "
                "Tokenizer of seqlab_data.tokenizers, or none: its models then run on ids"
            )
