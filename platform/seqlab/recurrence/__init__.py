"""Recurrent mixers, one idea a file."""

from seqlab.recurrence.causal_conv import CausalConv
from seqlab.recurrence.cbow import CBOW
from seqlab.recurrence.gru import GRU
from seqlab.recurrence.lru import LRU
from seqlab.recurrence.lstm import LSTM
from seqlab.recurrence.mamba import Mamba
from seqlab.recurrence.min_gru import MinGRU
from seqlab.recurrence.min_lstm import MinLSTM
from seqlab.recurrence.mlstm import MLSTM
from seqlab.recurrence.ngram_window import NGramWindow
from seqlab.recurrence.rg_lru import RGLRU
from seqlab.recurrence.rnn import RNN
from seqlab.recurrence.rwkv7 import RWKV7
from seqlab.recurrence.s4d import S4D
from seqlab.recurrence.slstm import SLSTM

__all__ = [
    "CBOW",
    "GRU",
    "LRU",
    "LSTM",
    "MLSTM",
    "RGLRU",
    "RNN",
    "RWKV7",
    "S4D",
    "SLSTM",
    "CausalConv",
    "Mamba",
    "MinGRU",
    "MinLSTM",
    "NGramWindow",
]
