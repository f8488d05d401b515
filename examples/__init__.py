"""Worked examples: custom environments (docs/tutorials/custom-environment.md)."""
