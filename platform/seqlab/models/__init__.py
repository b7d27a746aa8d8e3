"""Models: plain nn.Modules over the block library."""

from seqlab.models.classifier import BagOfWords, Classifier
from seqlab.models.decoder import DecoderLM
from seqlab.models.encoder import Encoder
from seqlab.models.encoder_decoder import EncoderDecoder
from seqlab.models.rnn_seq2seq import RNNSeq2Seq
from seqlab.models.tagger import Tagger

__all__ = ["BagOfWords", "Classifier", "DecoderLM", "Encoder", "EncoderDecoder", "RNNSeq2Seq", "Tagger"]
