"""A node of fakes, a model's folder and a small config."""

from tests.scripts.matching_setup import alone, cluster, model, small

__all__ = ["alone", "cluster", "model", "small"]
