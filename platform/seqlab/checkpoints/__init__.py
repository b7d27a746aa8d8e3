"""Checkpoints: atomic, checksummed, sharded."""
