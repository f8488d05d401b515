"""Adapters to trainers, nothing else: `trl` for one machine, `slime` and `verl` for clusters."""
