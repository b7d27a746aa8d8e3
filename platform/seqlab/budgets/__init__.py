"""Costs of a model: FLOPs by formula, the share of a device's peak, memory, the parts of a step's time, and sizes
solved for a budget."""

from seqlab.budgets.flops import decoding_flops, forward_flops, training_flops

__all__ = ["decoding_flops", "forward_flops", "training_flops"]
