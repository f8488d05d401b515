"""The flags and keys that each shipped config gives to each trainer; None where the trainer refuses the config."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from slim_rl.config import load_config
from slim_rl.errors import SlimError
from tests.fakes.cluster import Cluster, write_model
from tests.paths import ROOT

CONFIGS = (*sorted((ROOT / "configs").glob("*.yaml")), *sorted((ROOT / "examples").glob("*.yaml")))


def figures() -> dict[str, Any]:
    """Computes trainer -> config -> flag or key -> values."""
    trainers: dict[str, Callable[[Path, Path], Any]] = {"slime": slime, "trl": trl, "verl": verl}
    with tempfile.TemporaryDirectory() as place, patch.dict(os.environ, {"WORLD_SIZE": "1"}):
        return {
            f"{trainer} {path.name}": _placeless(given(path, Path(place)), place)
            for trainer, given in trainers.items()
            for path in CONFIGS
        }


def slime(path: Path, place: Path) -> dict[str, list[str]] | None:
    """Returns the flags of a dry run on eight GPUs (on one, if the config is for one), with a model of Qwen3's shape."""
    from tests.scripts.matching_setup import command_of, dry_run, flags_of, print_flags, printed, without_python

    node, model = Cluster.build(place / path.stem), write_model(place / "models", "Qwen3-0.6B")
    gpus = 1 if "1gpu" in path.stem else 8
    own = flags_of(command_of(dry_run(without_python(node, model), CONFIG=path, NUM_GPUS=gpus)))
    done = print_flags(node, MODEL=model, CONFIG=path, SAVE_DIR=own["--save"][0], given=())
    return None if done.returncode else own | printed(done)


def trl(path: Path, place: Path) -> dict[str, Any] | None:
    """Returns the arguments of GRPOTrainer that are not its defaults."""
    from trl import GRPOConfig

    from slim_rl.backends.trl.arguments import grpo_arguments

    usual = GRPOConfig(use_cpu=True, bf16=False).to_dict()
    try:
        arguments = grpo_arguments(load_config(path, ["train.backend=trl"]), place / "run").to_dict()
    except SlimError:
        return None
    return {key: value for key, value in arguments.items() if value != usual[key] and key != "logging_dir"}


def verl(path: Path, place: Path) -> dict[str, Any] | None:
    """Returns the keys that differ from verl's own."""
    from slim_rl.backends.verl.launch import check
    from slim_rl.backends.verl.settings import settings

    config = load_config(path, ["train.backend=verl"])
    try:
        check(config)
        return settings(config)
    except SlimError:
        return None


def _placeless(value: Any, place: str) -> Any:
    """The same without this machine's folders."""
    if isinstance(value, dict):
        return {key: _placeless(each, place) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_placeless(each, place) for each in value]
    if isinstance(value, (str, Path)):
        return str(value).replace(place, "PLACE").replace(str(ROOT), "ROOT").replace(str(Path.cwd()), "ROOT")
    return value
