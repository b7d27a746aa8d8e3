"""Recurrent mixers, one idea a file."""

from seqlab.recurrence.gru import GRU
from seqlab.recurrence.lru import LRU
from seqlab.recurrence.lstm import LSTM
from seqlab.recurrence.min_gru import MinGRU
from seqlab.recurrence.min_lstm import MinLSTM
from seqlab.recurrence.rnn import RNN

__all__ = ["GRU", "LRU", "LSTM", "RNN", "MinGRU", "MinLSTM"]
