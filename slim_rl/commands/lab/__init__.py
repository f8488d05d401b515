"""The commands of `slim-rl lab`, one file each."""
