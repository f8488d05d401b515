"""What comes with slim_rl is found from any folder, and the extras install on every Python that pyproject.toml names."""

import os
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from slim_rl import __version__, bundled
from slim_rl.config import ROOT_KEY, load_config
from slim_rl.errors import ConfigError, DataError
from tests.paths import ROOT


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


EXAMPLES = ("lock", "secret_number", "treasure", "user_simulator")


@pytest.mark.parametrize("name", bundled.names())
def test_every_config_is_known_by_name_and_by_path(empty: Path, name: str) -> None:
    folder = "examples/guess_who" if name == "guess_who_local" else "examples" if name in EXAMPLES else "configs"
    assert set(yaml.safe_load((ROOT / folder / f"{name}.yaml").read_text(encoding="utf-8"))) == {ROOT_KEY}
    paths = (name, f"{name}.yaml", f"{folder}/{name}.yaml", ROOT / folder / f"{name}.yaml")
    assert all(load_config(path) == load_config(name) for path in paths)


def test_a_file_of_ones_own_goes_first(empty: Path) -> None:
    (empty / "configs").mkdir()
    (empty / "configs" / "matching_local.yaml").write_text("name: mine")
    (empty / "matching").write_text("name: no suffix")
    (empty / "matching_local").mkdir()
    names = {"configs/matching_local.yaml": "mine", "matching": "no suffix", "matching_local": "matching_local"}
    assert {path: load_config(path).name for path in names} == names, "a folder of that name is not meant"


@pytest.mark.parametrize(
    "path", ["matching_loca", "elsewhere/matching_local.yaml", "matching_local.json", "configs/treasure", "/treasure"]
)
def test_what_is_not_there_is_answered_by_the_names(empty: Path, path: str) -> None:
    with pytest.raises(ConfigError, match=rf"Cannot read the config {path}: .* matching, .*matching_local, .*treasure"):
        load_config(path)


def test_the_warm_start_is_found_unless_there_is_one_here(empty: Path) -> None:
    for name in bundled.MODELS:
        found = Path(bundled.model(name))
        assert found.is_absolute() and (found / "model.safetensors").is_file()
        (empty / name).mkdir(parents=True)
        assert bundled.model(name) == name
    for other in ("Qwen/Qwen3-0.6B", "data/another"):
        assert bundled.model(other) == other


def test_copies_are_ours_and_nothing_is_overwritten(empty: Path) -> None:
    for name in bundled.COPIED:
        for path in bundled.copy(name, empty / "mine" / name):
            assert path.read_bytes() == (ROOT / path.relative_to(empty / "mine")).read_bytes()
    assert os.access(empty / "mine" / "scripts" / "run_matching.sh", os.X_OK)
    (empty / "mine" / "configs" / "matching.yaml").unlink()
    with pytest.raises(DataError, match=r"configs/.* exists"):
        bundled.copy("configs", empty / "mine" / "configs")
    assert not (empty / "mine" / "configs" / "matching.yaml").exists(), "nothing is copied by halves"


def test_the_wheel_takes_all_of_it() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for folder in (*bundled.COPIED, *bundled.MODELS):
        top = folder.split("/")[0]
        assert folder in wheel["only-include"] and wheel["sources"][top] == f"slim_rl/_bundled/{top}"


def test_the_version_is_the_same_everywhere() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [
    line.rpartition(" ")[2]
    for line in PROJECT["classifiers"]
    if line.startswith("Programming Language :: Python :: 3.")
]


def wanted(extra: str, python: str) -> dict[str, Requirement]:
    found = map(Requirement, PROJECT["optional-dependencies"][extra])
    return {each.name: each for each in found if not each.marker or each.marker.evaluate({"python_version": python})}


@pytest.mark.parametrize("name", ["verl", "trl", "transformers"])
def test_extra_asks_for_no_package_that_its_python_lacks(name: str) -> None:
    try:
        needs = SpecifierSet(metadata.metadata(name)["Requires-Python"])
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    for python in PYTHONS:
        assert f"{python}.0" in needs or not any(name in wanted(extra, python) for extra in ("local", "verl"))


@pytest.mark.parametrize("python", PYTHONS)
def test_verl_alone_holds_transformers_back(python: str) -> None:
    local, verl = wanted("local", python)["transformers"], wanted("verl", python).get("transformers")
    assert "5.24.0" in local.specifier and (verl is None or "5.24.0" not in verl.specifier)
    assert (verl is None) == (python == "3.13")
