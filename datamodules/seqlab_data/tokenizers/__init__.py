"""Tokenizers. No torch and no Lightning here: deployment machines import this package."""

from seqlab_data.tokenizers.base import StoredTokenizer, StreamDecoder, Tokenizer, load_tokenizer, tokenizer_from_dict
from seqlab_data.tokenizers.pretrained import PretrainedTokenizer
from seqlab_data.tokenizers.subword import SubwordTokenizer
from seqlab_data.tokenizers.units import ByteTokenizer, CharTokenizer, WordTokenizer

__all__ = [
    "ByteTokenizer",
    "CharTokenizer",
    "PretrainedTokenizer",
    "StoredTokenizer",
    "StreamDecoder",
    "SubwordTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "load_tokenizer",
    "tokenizer_from_dict",
]
