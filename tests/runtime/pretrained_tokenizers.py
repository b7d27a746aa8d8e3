"""Byte-level BPEs as the models have them whose checkpoints are imported, learnt from a small text."""

from __future__ import annotations

import tempfile
import unicodedata
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers

from seqlab_data.tokenizers import PretrainedTokenizer, Tokenizer

TEXT = "The cat sat on the mat, the cat  ate.\nÜber 9 000 naïve Größen €5 😀 日本語\t\u2581x\u00a0y " * 30
JOINED = ["e\u0301", "\U0001f469\u200d\U0001f680", "\U0001f1e6\U0001f1fa", "a\u0308\u0323"]
MORE = [*JOINED, "\ufeff", "\r\n", "\x1c\x1d\x1e"]
WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA, QWEN = WORD + r"|\p{N}{1,3}" + REST, WORD + r"|\p{N}" + REST
"""Patterns of Llama 3 and of Qwen that split a text into words."""


def pretrained(
    *steps: Any,
    special: tuple[str, ...],
    normalizer: Any = None,
    added: tuple[AddedToken, ...] = (),
    whole: bool = False,
) -> Tokenizer:
    """A tokenizer with these steps of a pre-tokenizer, the last of which is ByteLevel."""
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=whole))
    made.pre_tokenizer = pre_tokenizers.Sequence([*steps])
    if normalizer is not None:
        made.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=[*special], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([TEXT, *(text for word in TEXT.split() for text in (word, f" {word}"))], trainer)
    made.add_tokens([*added])
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        made.save(file.name)
        return PretrainedTokenizer(file=file.name)


def _bytes(*, split: bool = False, space: bool = False) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=split)


def _split(pattern: str, behavior: str = "isolated", *, invert: bool = False) -> Any:
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


END = ("<|endoftext|>",)
SPACES = tuple(AddedToken(" " * number, normalized=True) for number in (2, 3, 5))
PRETRAINED = {
    "gpt2": lambda: pretrained(_bytes(split=True), special=END),
    "llama3": lambda: pretrained(_split(LLAMA), _bytes(), special=("<|begin_of_text|>", "<|end_of_text|>"), whole=True),
}
"""Tokenizers that the page has too."""
MORE_PRETRAINED = {
    "qwen": lambda: pretrained(
        _split(QWEN),
        _bytes(),
        special=END,
        normalizer=normalizers.NFC(),
        added=(AddedToken("<tool>", normalized=False), AddedToken("<tools>", normalized=False)),
    ),
    "neox": lambda: pretrained(_bytes(split=True), special=END, normalizer=normalizers.NFC(), added=SPACES),
    "smollm": lambda: pretrained(pre_tokenizers.Digits(individual_digits=True), _bytes(split=True), special=END),
    "grouped digits": lambda: pretrained(_split(r"(?=(\d{3})+(?!\d))"), _bytes(split=True), special=END),
    "digits": lambda: pretrained(
        pre_tokenizers.Digits(), _bytes(space=True), special=END, normalizer=normalizers.NFKD()
    ),
    "words alone": lambda: pretrained(
        _split(r"\p{L}+|\d", "removed", invert=True),
        pre_tokenizers.Split("a", "isolated"),
        _bytes(),
        special=END,
        normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.NFC()]),
    ),
}


def assigned(text: str) -> str:
    """Without what is no character yet in Python's Unicode, and may be a letter elsewhere."""
    return "".join(character for character in text if unicodedata.category(character) != "Cn")
