"""Recurrent mixers, one idea a file."""

from seqlab.recurrence.gru import GRU
from seqlab.recurrence.lstm import LSTM
from seqlab.recurrence.rnn import RNN

__all__ = ["GRU", "LSTM", "RNN"]
