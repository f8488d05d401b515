"""Worked examples: games of your own (docs/tutorials/custom-environment.md)."""
