"""Worked examples: games of your own (docs/own_game.md)."""
