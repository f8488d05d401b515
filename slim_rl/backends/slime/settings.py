"""The settings of a launch on slime that concern the machines: one table, each an environment variable and a flag of the same name.

Every value is checked here, before it is used, and no shell ever evaluates one. What belongs to the experiment
is in its config; flags that are not in the table are slime's own and are passed on.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from rapidfuzz.distance import OSA

from slim_rl.backends.ready import check_environment
from slim_rl.errors import ConfigError

# slime's flags that the launch derives from a setting: given by hand they would contradict it
_DERIVED = {
    "--hf-checkpoint": "MODEL",
    "--save": "SAVE_DIR",
    "--load": "SAVE_DIR",
    "--ref-load": "TORCH_DIST",
    "--prompt-data": "DATA",
    "--tensor-model-parallel-size": "TP",
}
_REFUSED = {
    "--partial-rollout": "is refused: a dialogue that slime calls off is played again from its first turn; leave it out.",
    "--group-rm": "is refused: slime would overwrite the games' rewards with those of a reward model; leave it out.",
    "--num-steps-per-rollout": "is refused: slime takes it beside no --global-batch-size, by which the updates of a step are set; give that instead.",
    **{flag: f"is set from {setting}; give that instead." for flag, setting in _DERIVED.items()},
}
_EVAL_INTERVAL = 10  # steps, where nobody says


def whole(name: str, text: str, least: int = 1) -> int:
    """The number that is written in decimal digits. Raises ConfigError, with the `name` of what was given it."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise ConfigError(f"{name} is {text!r}; it must be a whole number of at least {least}.")
    return int(text)


def _named(value: Any, info: ValidationInfo, least: int = 1) -> int:
    return whole(str(info.field_name).upper(), str(value), least)


_Positive = Annotated[int, BeforeValidator(_named)]
_Natural = Annotated[int, BeforeValidator(partial(_named, least=0))]


class Settings(BaseModel):
    """The settings. None, or an empty text, leaves the choice to the launch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field("", description="checkpoint folder, or a name on the hub")
    config: Path = Field(
        Path("configs/matching.yaml"), description="the experiment; --set key=value changes a key of it"
    )
    partner: str = Field("", description="partner.kind of the config: openai, shy, forthcoming, mute, self (self-play)")
    data: str = Field("", description="games to train on, made when missing (data.train)")
    eval_data: str = Field("", description="held-out games, made when missing (data.eval)")
    num_rollout: _Positive | None = Field(None, description="training steps in all (train.steps)")
    save_dir: str = Field("", description="the run's folder; started again, a run continues from its last checkpoint")
    save_interval: _Positive | None = Field(None, description="steps between checkpoints (train.save_every)")
    eval_interval: _Natural | None = Field(
        None, description="steps between evaluations; 0: none (train.eval_every, or 10)"
    )
    num_gpus: _Positive | None = Field(None, description="GPUs of a node (those nvidia-smi shows)")
    num_nodes: _Positive = Field(1, description="nodes")
    tp: _Positive | None = Field(
        None, description="GPUs that share one copy of the training weights (by the model's size)"
    )
    colocate: Literal["0", "1"] | None = Field(
        None, description="1: training and inference take turns on all GPUs (usual); 0: each has its own"
    )
    rollout_gpus: _Positive | None = Field(None, description="not colocated: GPUs in all that go to inference (half)")
    engine_gpus: _Positive | None = Field(None, description="GPUs of one SGLang engine (by the model's size)")
    asynchronous: Literal["0", "1", "full"] = Field(
        "0",
        alias="async",
        description="0: play, then train; 1: play the next step's games while training; full: games never wait for a step",
    )
    torch_dist: str = Field(
        "", description="the checkpoint in Megatron's format, converted when missing; empty: slime reads MODEL itself"
    )
    slime_dir: str = Field("", description="slime's checkout (found from its package)")
    megatron_dir: str = Field("", description="Megatron-LM's checkout (beside slime, or found from its package)")

    def evaluates_every(self, asked: int) -> int:
        """Steps between evaluations, where the config asks for `asked`: 0 leaves it to the launch."""
        return (asked or _EVAL_INTERVAL) if self.eval_interval is None else self.eval_interval

    @classmethod
    def names(cls) -> dict[str, str]:
        """Variable name -> description, in the order of the table."""
        return {(field.alias or name).upper(): field.description or "" for name, field in cls.model_fields.items()}


def _parser() -> argparse.ArgumentParser:
    """The settings as flags."""
    parser = argparse.ArgumentParser(
        "run_matching.sh",
        allow_abbrev=False,
        exit_on_error=False,
        description="Trains a policy with slime (GRPO). docs/how-to/slime-launch.md walks through it.",
        epilog="Each setting is also an environment variable of the same name (--num-gpus 4 or NUM_GPUS=4); the flag wins. "
        "Any flag of slime, Megatron or SGLang may follow, and wins over the one set here.",
    )
    for variable, text in Settings.names().items():
        switch: dict[str, Any] = {"action": "store_const", "const": "1"}
        kind = switch if variable == "COLOCATE" else {"metavar": variable}
        parser.add_argument(f"--{variable.lower().replace('_', '-')}", **kind, help=text)
        if variable == "COLOCATE":
            parser.add_argument("--no-colocate", action="store_const", const="0", dest="colocate", help="COLOCATE=0")
    again: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--set", **again, dest="overrides", metavar="KEY=VALUE", help="a key of the config")
    plugins = "YAML of another plug-in of slime; its keys join the run's own file"
    parser.add_argument("--custom-config-path", **again, dest="plugins", metavar="FILE", type=Path, help=plugins)
    dry_run = "print the command and stop; needs neither slime nor a GPU"
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    return parser


def read_settings(
    words: Sequence[str], environment: Mapping[str, str]
) -> tuple[Settings, argparse.Namespace, list[str]]:
    """The settings, what else was asked for (`overrides`, `plugins`, `dry_run`), and slime's own flags in their order.

    Raises:
        ConfigError: a value is not what its setting takes, or a flag contradicts one.
    """
    try:
        options, own = _parser().parse_known_args(words)
    except argparse.ArgumentError as error:
        needs = re.sub(r"^argument (\S+): expected one argument$", r"\1 needs a value", str(error))
        raise ConfigError(f"{needs}; --help lists the settings.") from None
    check_environment(Settings.names(), environment)
    names = [name.lower() for name in Settings.names()]
    given = {name: environment[name.upper()] for name in names if environment.get(name.upper())}
    given |= {name: value for name, value in vars(options).items() if name in names and value is not None}
    try:
        settings = Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name, wanted = str(first["loc"][0]), first["msg"].removeprefix("Input should be ")
        raise ConfigError(f"{name.upper()} is {given[name]!r}; it must be {wanted}.") from None
    if own and not own[0].startswith("--"):
        raise ConfigError(
            f"'{own[0]}' is not understood. Settings are NAME=value before the script, or flags after it; see --help."
        )
    ours = ("--dry-run", *(f"--{name.lower().replace('_', '-')}" for name in Settings.names()))
    for flag in (word.partition("=")[0] for word in own if word.startswith("--")):
        if near := next((each for each in ours if len(each) > 8 and OSA.distance(flag, each) == 1), None):
            raise ConfigError(f"{flag} is neither a setting nor a flag of slime's; did you mean {near}?")
        if flag in _REFUSED:
            raise ConfigError(f"{flag} {_REFUSED[flag]}")
    if settings.asynchronous != "0" and settings.colocate == "1":
        raise ConfigError(
            f"ASYNC={settings.asynchronous} plays while it trains and cannot share GPUs: use COLOCATE=0 (--no-colocate)."
        )
    return settings, options, own
