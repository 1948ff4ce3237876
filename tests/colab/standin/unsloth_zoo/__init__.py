"""Stands where unsloth_zoo is, as far as the casebook calls it."""

__version__ = "2026.10.9"
