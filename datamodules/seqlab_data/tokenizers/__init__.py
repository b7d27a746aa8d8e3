"""Tokenizers, one idea a file. No torch and no Lightning here: deployment machines import this package."""

from seqlab_data.tokenizers.base import StreamDecoder, Tokenizer, load_tokenizer, tokenizer_from_dict
from seqlab_data.tokenizers.byte import ByteTokenizer
from seqlab_data.tokenizers.char import CharTokenizer
from seqlab_data.tokenizers.pretrained import PretrainedTokenizer
from seqlab_data.tokenizers.stored import StoredTokenizer
from seqlab_data.tokenizers.subword import SubwordTokenizer
from seqlab_data.tokenizers.word import WordTokenizer

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
