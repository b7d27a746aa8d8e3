"""Recurrent mixers, one idea per file."""

from seqlab.recurrence.gru import GRU
from seqlab.recurrence.linoss import LinOSS
from seqlab.recurrence.lru import LRU
from seqlab.recurrence.lstm import LSTM
from seqlab.recurrence.mamba import Mamba
from seqlab.recurrence.minimal import MinGRU, MinLSTM
from seqlab.recurrence.mlstm import MLSTM
from seqlab.recurrence.rg_lru import RGLRU
from seqlab.recurrence.rnn import RNN
from seqlab.recurrence.rwkv7 import RWKV7
from seqlab.recurrence.s4d import S4D
from seqlab.recurrence.slstm import SLSTM
from seqlab.recurrence.window import CBOW, CausalConv, NGramWindow

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
    "LinOSS",
    "Mamba",
    "MinGRU",
    "MinLSTM",
    "NGramWindow",
]
