"""Probes of a model: attention weights, gates, gradients through time and head ablation."""
