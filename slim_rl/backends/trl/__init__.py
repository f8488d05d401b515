"""TRL on one machine."""
