"""Costs of a model: FLOPs by formula, device peaks, memory, attribution of step time, and sizes solved for a budget."""

from seqlab.budgets.flops import decoding_flops, forward_flops, training_flops

__all__ = ["decoding_flops", "forward_flops", "training_flops"]
