"""Measurement code shared by several studies."""
