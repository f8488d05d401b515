"""A node of fakes, a model's folder and a small config."""

from tests.scripts.matching_setup import cluster, model, small

__all__ = ["cluster", "model", "small"]
