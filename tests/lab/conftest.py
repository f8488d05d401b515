"""Logs and an experiment of made-up runs, shared by the tests of this room."""

from __future__ import annotations

from tests.analysis.conftest import analysed, log_dir, unprinted
from tests.lab.made_experiment import manifest_path

__all__ = ["analysed", "log_dir", "manifest_path", "unprinted"]  # fixtures
