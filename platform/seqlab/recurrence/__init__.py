"""Recurrent mixers, one idea a file."""

from seqlab.recurrence.gru import GRU
from seqlab.recurrence.lstm import LSTM
from seqlab.recurrence.mlstm import MLSTM
from seqlab.recurrence.rnn import RNN
from seqlab.recurrence.rwkv7 import RWKV7
from seqlab.recurrence.slstm import SLSTM

__all__ = ["GRU", "LSTM", "MLSTM", "RNN", "RWKV7", "SLSTM"]
