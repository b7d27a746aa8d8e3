"""Probes, which look into a model: attention weights, gates, gradients through time, heads left out."""
