"""Partners of the matching game."""
