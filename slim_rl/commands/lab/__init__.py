"""Commands of `slim-rl lab`, one file per command."""
