"""Recurrent mixers, one idea a file."""

from seqlab.recurrence.gru import GRU
from seqlab.recurrence.lru import LRU
from seqlab.recurrence.lstm import LSTM
from seqlab.recurrence.mamba import Mamba
from seqlab.recurrence.min_gru import MinGRU
from seqlab.recurrence.min_lstm import MinLSTM
from seqlab.recurrence.rg_lru import RGLRU
from seqlab.recurrence.rnn import RNN
from seqlab.recurrence.s4d import S4D

__all__ = ["GRU", "LRU", "LSTM", "RGLRU", "RNN", "S4D", "Mamba", "MinGRU", "MinLSTM"]
