"""Models: plain nn.Modules over the block library."""

from seqlab.models.classifier import BagOfWords, Classifier
from seqlab.models.decoder import DecoderLM
from seqlab.models.encoder import Encoder
from seqlab.models.encoder_decoder import EncoderDecoder
from seqlab.models.masked_lm import MaskedLM
from seqlab.models.rnn_seq2seq import RNNSeq2Seq
from seqlab.models.tagger import Tagger

MODELS = (DecoderLM, EncoderDecoder, RNNSeq2Seq, BagOfWords, Classifier, Tagger, MaskedLM)
"""Models that a bundle can hold; their `kind` tells them apart."""

__all__ = [
    "MODELS",
    "BagOfWords",
    "Classifier",
    "DecoderLM",
    "Encoder",
    "EncoderDecoder",
    "MaskedLM",
    "RNNSeq2Seq",
    "Tagger",
]
