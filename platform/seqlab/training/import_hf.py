"""A checkpoint of Hugging Face `transformers` as a finished run, which every verb takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqlab.models.pretrained import read_pretrained
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.params import to_yaml
from seqlab.training.checkpoint_io import AtomicCheckpointIO
from seqlab.training.config import build


def import_hf(folder: Path, *, experiment: str, run_name: str | None) -> str:
    """Makes a run of a GPT-2 or Llama folder (`config.json`, safetensors, `tokenizer.json`).

    Returns:
        the run's name.

    Raises:
        ValueError: what is missing in the folder, or not ours to compute. Then no run is made.
    """
    from seqlab_data.tokenizers import PretrainedTokenizer

    pretrained = read_pretrained(folder)
    file = str((folder / "tokenizer.json").resolve())
    tokenizer = PretrainedTokenizer(file=file, vocab_size=pretrained.vocab_size)
    if tokenizer.vocab_size != pretrained.vocab_size:
        raise ValueError(
            f"{folder}: tokenizer.json has {tokenizer.vocab_size} tokens, config.json says {pretrained.vocab_size}"
        )
    options = {"file": file, "vocab_size": pretrained.vocab_size}
    config: dict[str, Any] = {
        "data": {
            "class_path": "seqlab_data.TextDataModule",
            "init_args": {
                "seq_len": pretrained.seq_len,
                "tokenizer": {"class_path": "seqlab_data.tokenizers.PretrainedTokenizer", "init_args": options},
            },
        },
        "model": {"class_path": "seqlab.tasks.LanguageModeling", "init_args": {"model": pretrained.model}},
    }
    told = {"vocab_size": tokenizer.vocab_size, "seq_len": pretrained.seq_len}
    task, _ = build(config, told)
    task.model.load_state_dict(pretrained.weights)

    logger = RunLogger(experiment, name=run_name or folder.resolve().name)
    assert logger.checkpoint_dir is not None
    logger.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    stored = {"config": config, "told": told, "tokenizer": tokenizer.to_dict(), "run_id": logger.run_id}
    AtomicCheckpointIO().save_checkpoint(
        {"state_dict": task.state_dict(), "seqlab": stored}, logger.checkpoint_dir / "best.ckpt"
    )
    logger.log_text(to_yaml(config), "config.yaml")
    logger.log_hyperparams(config)
    logger.log_tags({"checkpoint.best": "checkpoints/best.ckpt", "imported_from": str(folder)})
    logger.log_metrics({"num_params": float(sum(p.numel() for p in task.model.parameters()))}, step=0)
    logger.finalize("success")
    return logger.run_name
