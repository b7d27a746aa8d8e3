"""A `config.json` that is read field by field; what was not read is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

T = TypeVar("T")

_NAMES = (
    # Where it comes from, and in what it was stored.
    "_name_or_path name_or_path _commit_hash architectures model_type transformers_version torch_dtype dtype "
    "transformers.js_config is_llama_config tokenizer_class "
    # Training: initialisation, dropout, memory.
    "initializer_range resid_pdrop embd_pdrop attn_pdrop attention_dropout gradient_checkpointing use_bfloat16 "
    # Other heads than the language model's.
    "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout finetuning_task "
    "id2label label2id num_labels _num_labels problem_type n_special predict_special_tokens "
    # How the same numbers are computed and handed out.
    "use_cache output_past output_attentions output_hidden_states return_dict torchscript chunk_size_feed_forward "
    "attn_implementation _attn_implementation _attn_implementation_autoset reorder_and_upcast_attn pretraining_tp "
    # How a text is generated.
    "bos_token_id eos_token_id pad_token_id sep_token_id prefix task_specific_params max_length min_length do_sample "
    "early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty "
    "length_penalty no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate "
    "forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens"
)
WITHOUT_EFFECT = frozenset(_NAMES.split())
"""Fields that change no logit, in any family that is read here."""


class ForeignConfig:
    """The fields of a `config.json`, or of a section of it, each read by its kind.

    Null counts as absent for a size and a section; for the others transformers takes it as false.

    Args:
        place: what holds the fields, as a refusal names it.
    """

    def __init__(self, fields: Mapping[str, Any], place: str) -> None:
        self.place = place
        self._fields = fields
        self._read: set[str] = set()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises ValueError where the folder has no `config.json`, or it is none."""
        path = folder / "config.json"
        if not path.is_file():
            raise ValueError(f"{folder} has no config.json; give a folder written by transformers' save_pretrained")
        return cls(read_object(path), str(path))

    def size(self, name: str, default: int | None = None) -> int:
        """A positive whole number; without a default the field is required."""
        value = default if self.is_null(name) else self._take(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.refuse(name, "a positive whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive finite number; without a default the field is required."""
        value = self._take(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            self.refuse(name, "a positive number")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            self.refuse(name, "a name")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._take(name, default)
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return value

    def choice(self, name: str, default: str, accepted: Mapping[str, T]) -> T:
        """The value that one of a few names stands for."""
        value = self.text(name, default)
        if value not in accepted:
            self.refuse(name, ", ".join(accepted))
        return accepted[value]

    def only(self, **accepted: Any) -> None:
        """Refuses values other than these; an absent field counts as having them."""
        for name, expected in accepted.items():
            value = self._take(name, expected)
            if value != expected or isinstance(value, bool) != isinstance(expected, bool):
                self.refuse(name, json.dumps(expected))

    def absent(self, *names: str) -> None:
        """Refuses values other than null."""
        for name in names:
            if not self.is_null(name) and name in self._fields:
                self.refuse(name, "null")

    def is_one_of(self, name: str, *accepted: Any) -> bool:
        """True if a field has one of these values; absent, it counts as having the first."""
        return self._take(name, accepted[0]) in accepted

    def numbers(self, name: str, default: list[int]) -> list[int]:
        """A list of whole numbers."""
        value = default if self.is_null(name) else self._take(name, default)
        if not isinstance(value, list) or not all(type(number) is int for number in value):
            self.refuse(name, "a list of whole numbers")
        return value

    def names(self, name: str, default: list[str], accepted: Sequence[str]) -> list[str]:
        """A list of a few names."""
        value = default if self.is_null(name) else self._take(name, default)
        if not isinstance(value, list) or not all(one in accepted for one in value):
            self.refuse(name, f"a list of {' and '.join(accepted)}")
        return value

    def section(self, name: str) -> ForeignConfig:
        """The fields of an object; absent, it has none."""
        value = {} if self.is_null(name) else self._take(name, {})
        if not isinstance(value, dict):
            self.refuse(name, "an object")
        return ForeignConfig(value, f"{name} of {self.place}")

    def has(self, name: str) -> bool:
        return name in self._fields

    def __len__(self) -> int:
        return len(self._fields)

    def ignore(self, *names: str) -> None:
        """Marks fields as read that change no logit here."""
        self._read.update(names)

    def is_null(self, name: str) -> bool:
        """True if the field is present and null."""
        self._read.add(name)
        return name in self._fields and self._fields[name] is None

    def finish(self) -> None:
        """Raises ValueError where a field has not been read that may change the result."""
        for name in self._fields:
            if name not in self._read | WITHOUT_EFFECT:
                self.refuse(name, "none, since the field is unknown; remove it if it changes no result")

    def _take(self, name: str, default: Any) -> Any:
        self._read.add(name)
        if name not in self._fields and default is None:
            raise ValueError(f"{self.place} lacks {name}")
        return self._fields.get(name, default)

    def refuse(self, name: str, accepted: str) -> NoReturn:
        raise ValueError(f"{self.place} has {name} {json.dumps(self._fields.get(name))[:80]}; accepted: {accepted}")


def read_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        ValueError: it holds something else, or is no JSON.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} does not hold a JSON object")
    return found
