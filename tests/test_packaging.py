"""The extras install on every Python that pyproject.toml names."""

from __future__ import annotations

import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [
    line.rpartition(" ")[2]
    for line in PROJECT["classifiers"]
    if line.startswith("Programming Language :: Python :: 3.")
]


def wanted(extra: str, python: str) -> dict[str, Requirement]:
    found = map(Requirement, PROJECT["optional-dependencies"][extra])
    return {each.name: each for each in found if not each.marker or each.marker.evaluate({"python_version": python})}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["verl", "trl", "transformers"])
def test_extra_asks_for_no_package_that_its_python_lacks(name: str, python: str) -> None:
    try:
        needs = metadata.metadata(name)["Requires-Python"]
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    for extra in ("local", "verl"):
        assert name not in wanted(extra, python) or f"{python}.0" in SpecifierSet(needs)


@pytest.mark.parametrize("python", PYTHONS)
def test_verl_alone_holds_transformers_back(python: str) -> None:
    local, verl = wanted("local", python)["transformers"], wanted("verl", python).get("transformers")
    assert "5.24.0" in local.specifier and (verl is None or "5.24.0" not in verl.specifier)
    assert (verl is None) == (python == "3.13")
