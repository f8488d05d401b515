"""The commands of `slim-rl`, one file each."""
