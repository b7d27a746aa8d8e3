"""Import of a Hugging Face `transformers` checkpoint as a finished run, for use with every verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from seqlab.checkpoints.io import AtomicCheckpointIO
from seqlab.config.configs import build
from seqlab.files.phases import report
from seqlab.models.pretrained import Pretrained, SpecialIds, read_pretrained, read_special_ids
from seqlab.tracking.logger import RunLogger, check_experiment
from seqlab.tracking.params import to_yaml
from seqlab.trained.foreign_logits import ForeignLogits


class Imported(NamedTuple):
    """An imported run.

    Attributes:
        run_name: name of the run.
        config: config file of the run, for a fit that starts from it.
        has_tokenizer: whether the model reads text; otherwise it reads ids.
        chats: whether the model answers chats.
        why_no_chats: reason why the folder's chat template was not kept; empty if it was, or there is none.
        difference: relative RMS difference from the logits of transformers; None = transformers is not installed.
    """

    run_name: str
    config: Path
    has_tokenizer: bool
    chats: bool
    why_no_chats: str
    difference: float | None


def import_hf(folder: Path, *, experiment: str, run_name: str | None) -> Imported:
    """Creates a run from a checkpoint folder with `config.json`, safetensors and, to read text, `tokenizer.json`.

    Raises:
        ValueError: a file is missing, the model is not supported, or its logits differ. No run is created then.
    """
    check_experiment(experiment)
    report("reading the checkpoint", 0, 4)
    pretrained = read_pretrained(folder)
    special = read_special_ids(folder, pretrained.vocab_size)
    config: dict[str, Any] = {
        "model": {"class_path": "seqlab.tasks.LanguageModeling", "init_args": {"model": pretrained.model}}
    }
    tokenizer, why_no_chats = None, ""
    if (folder / "tokenizer.json").exists():
        tokenizer = _tokenizer(folder, pretrained, special)
        from seqlab_data.tokenizers.chat_template import read_chat_format

        try:
            tokenizer.chat = read_chat_format(folder, tokenizer)
        except ValueError as error:
            why_no_chats = str(error)
        stored_with_run = {"class_path": "seqlab_data.tokenizers.StoredTokenizer", "init_args": {}}
        options = {"seq_len": pretrained.seq_len, "tokenizer": stored_with_run}
        config["data"] = {"class_path": "seqlab_data.TextDataModule", "init_args": options}
    told = {"vocab_size": pretrained.vocab_size, "seq_len": pretrained.seq_len}
    # Before our model is built, so that only one of the two models is in memory.
    report("logits of transformers", 1, 4)
    foreign = ForeignLogits.of(folder, **told)
    report("logits of seqlab", 2, 4)
    task, _ = build(config, told)
    task.model.load_state_dict(pretrained.weights)
    difference = None if foreign is None else foreign.check(task.model.eval())

    report("storing the run", 3, 4)
    logger = RunLogger(experiment, name=run_name or folder.resolve().name)
    assert logger.checkpoint_dir is not None
    logger.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    stored = {"config": config, "told": told, "run_id": logger.run_id, "stop_ids": list(special.eos)}
    stored["tokenizer"] = None if tokenizer is None else tokenizer.to_dict()
    AtomicCheckpointIO().save_checkpoint(
        {"state_dict": task.state_dict(), "seqlab": stored}, logger.checkpoint_dir / "best.ckpt"
    )
    logger.log_text(to_yaml(config), "config.yaml")
    if tokenizer is not None:
        logger.log_text(json.dumps(tokenizer.to_dict()) + "\n", "tokenizer.json")
    logger.log_hyperparams(config)
    logger.log_tags({"checkpoint.best": "checkpoints/best.ckpt", "imported_from": str(folder)})
    logger.log_metrics({"num_params": float(sum(p.numel() for p in task.model.parameters()))}, step=0)
    logger.finalize("success")
    return Imported(
        logger.run_name,
        logger.checkpoint_dir.parent / "config.yaml",
        tokenizer is not None,
        tokenizer is not None and tokenizer.chat is not None,
        why_no_chats,
        difference,
    )


def _tokenizer(folder: Path, pretrained: Pretrained, special: SpecialIds) -> Any:
    """Tokenizer of the folder."""
    from seqlab_data.tokenizers import PretrainedTokenizer

    try:
        tokenizer = PretrainedTokenizer(
            file=str(folder / "tokenizer.json"),
            vocab_size=pretrained.vocab_size,
            bos_id=special.bos,
            eos_id=list(special.eos),
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}; remove that file to import a model that reads ids") from error
    if tokenizer.vocab_size != pretrained.vocab_size:
        raise ValueError(
            f"{folder}: tokenizer.json has {tokenizer.vocab_size} tokens, but config.json has {pretrained.vocab_size}"
        )
    return tokenizer
