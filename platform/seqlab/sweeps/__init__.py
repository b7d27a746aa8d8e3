"""Sweeps: fits of one config whose options vary, chosen by Optuna, each a process of its own."""
