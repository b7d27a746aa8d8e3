"""Rewrites of captured graphs."""
