"""The one configuration, read from configs/*.yaml and validated whole before anything starts.

A file holds one top-level key, ``slim_rl``, so that the same file can be given to slime's ``--custom-config-path`` (which makes
``args.slim_rl`` of it). Every key has a default; an unknown key is an error. Paths are relative to the working directory.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from slim_rl import bundled
from slim_rl.config.clusters import WITHOUT_GROUPS, SlimeConfig, TrlConfig, VerlConfig
from slim_rl.config.endpoint import LEAST_CONCURRENCY, MOST_CONCURRENCY, ChatPolicyConfig, OpenAIConfig, Price
from slim_rl.config.reading import checked, load_section, overridden, read_yaml
from slim_rl.config.section import ACTOR, ASIDE, NAMES, ROLLOUT, Key, Section, fields_of
from slim_rl.config.sections import (
    DataConfig,
    Limits,
    LogConfig,
    Member,
    PartnerConfig,
    PolicyConfig,
    TrainConfig,
    WarmstartConfig,
)
from slim_rl.environment import MATCHING, BaseEnvironment, environment_class, load_object
from slim_rl.errors import ConfigError, did_you_mean, misfit
from slim_rl.files import write_atomically
from slim_rl.formats import without_passwords

ROOT_KEY = "slim_rl"
CHAT_PARTNER = "slim_rl.partners.openai_chat.OpenAIPartner"  # kind openai of a game without its own
TRAINING_REWARDS = NAMES["training_rewards"]  # by their short names in `train.reward`
SELF = "self"  # partner.kind of self-play
NOBODY = "none"  # who sits opposite the policy in a game for one
MIXTURE = "mixture"  # several partners, of which each game has one
_HOW_TO_NAME_IT = f"give the path of a YAML file, a run's folder, or one of these names: {', '.join(bundled.names())}"


@dataclass(frozen=True, slots=True)
class Opposite:
    """Player opposite the policy.

    Attributes:
        name: its name in logs and tables: `partner.kind`, "none" in a game for one, or "mixture" for several (`Config.members`).
        path: dotted path of the partner's class; empty in self-play, in games for one and for several.
        recorded: it gives recorded answers only (`partner.openai.cassette_mode`).
    """

    name: str
    path: str = ""
    recorded: bool = False

    @property
    def cls(self) -> Any:
        """The partner's class, a `dialogue.players.Partner`; None without one. Raises ConfigError if it cannot be imported."""
        return load_object(self.path, "partner.kind", "examples.treasure.HonestPartner") if self.path else None

    @property
    def scripted(self) -> bool:
        """True if it plays by rules, without cost."""
        return self.cls is not None and not self._costs_money

    @property
    def paid(self) -> bool:
        """True if its turns cost money."""
        return self._costs_money and not self.recorded

    @property
    def _costs_money(self) -> bool:
        return bool(getattr(self.cls, "costs_money", False))  # a class that is no partner is refused when it is made


class Config(Section):
    """Everything about one run."""

    name: Annotated[str, ASIDE] = "run"
    """name of the run: its folder, and its label in logs and plots"""
    arm: Annotated[str, ASIDE] = ""
    """the run's arm in a comparison, its label in logs and plots; empty: the partner's kind"""
    seed: Annotated[int, Key("--rollout-seed --seed", "seed", f"data.seed {ROLLOUT}.seed {ACTOR}.data_loader_seed")] = (
        Field(0, ge=0, lt=2**32)
    )
    """seed of the order of games and of sampling; the games have their own seed, data.seed"""
    output_dir: Annotated[Path, ASIDE] = Path("runs")
    """parent folder of the runs; on slime SAVE_DIR names a run's folder, which run_matching.sh by itself calls runs/CONFIG-MODEL"""
    environment: Annotated[str, ASIDE] = MATCHING
    """dotted path of the game, a BaseEnvironment; may be your own (docs/reference/environment-api.md)"""
    game: SerializeAsAny[Any] = Field(None, validate_default=True)
    """the game's own settings"""
    data: DataConfig = DataConfig()
    partner: PartnerConfig = PartnerConfig()
    limits: Limits = Limits()
    policy: PolicyConfig = PolicyConfig()
    train: TrainConfig = TrainConfig()
    log: Annotated[LogConfig, ASIDE] = LogConfig()
    warmstart: Annotated[WarmstartConfig, ASIDE] = Field(WarmstartConfig(), validate_default=True)
    arms: Annotated[dict[str, dict[str, Any]], ASIDE] = NAMES["arms"]
    """arms of an experiment: each has a name and the keys that it changes"""
    trl: TrlConfig = TrlConfig()
    slime: SlimeConfig = SlimeConfig()
    verl: VerlConfig = VerlConfig()

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, name: str) -> str:
        if not name or name[0] in ".~" or name != name.strip() or any(c in "/\0\n" for c in name):
            raise ValueError("names the run's folder: a plain name without /, such as matching-seed-3")
        return name

    @field_validator("game", mode="before")
    @classmethod
    def _are_the_games_settings(cls, value: Any, info: ValidationInfo) -> Any:
        path = info.data.get("environment")
        if path is None:  # wrong already
            return value
        made = environment_class(path)
        model, value = made.Settings, {} if value is None else value
        if model is None:
            if not isinstance(value, Mapping):
                raise ValueError("must be a mapping of the environment's constructor arguments")
            try:
                inspect.signature(made).bind(**value)
            except TypeError as error:
                raise ValueError(f"does not suit {path}: {misfit(error)}") from error
            return dict(value)
        return checked(model, value, "game")

    @field_validator("warmstart")
    @classmethod
    def _has_the_games_player(cls, value: WarmstartConfig, info: ValidationInfo) -> WarmstartConfig:
        path = info.data.get("environment")
        if path is None:  # wrong already
            return value
        model, settings = environment_class(path).PlayerSettings, value.player or {}
        if model is not None:
            return value.changed(player=checked(model, settings, "warmstart.player"))
        if settings:
            raise ConfigError(f"warmstart.player is {settings}, but {path} takes no settings: leave it out.")
        return value

    @model_validator(mode="after")
    def _names_what_there_is(self) -> "Config":
        game = environment_class(self.environment)
        if self.data.seat != 0 and game.seats == 1:
            raise ValueError(f"data.seat is {self.data.seat}, but {game.__name__} has one seat; leave it out")
        if not self.partner.mixture:
            _check_kind(game, self.partner.kind, "partner.kind", SELF)
        for key, mixture in (
            ("partner.mixture", self.partner.mixture),
            ("warmstart.partners", self.warmstart.partners),
        ):
            for name, member in self._alone(mixture or {}, key).items():
                _check_kind(game, member.partner.kind, f"{key}.{name}")
        _check_name("train.reward", self.train.reward, "training reward", TRAINING_REWARDS)
        return self

    @model_validator(mode="after")
    def _compares(self) -> "Config":
        alone = self.train.backend == "verl" and self.verl.adv_estimator in WITHOUT_GROUPS
        if self.train.group_size < 2 and not alone:
            raise ValueError("train.group_size is 1, but GRPO compares a game's dialogues: take 2 or more")
        return self

    @property
    def arm_name(self) -> str:
        return self.arm or self.opposite.name

    @property
    def opposite(self) -> Opposite:
        """Player opposite the policy; only here `partner.kind` becomes one."""
        game, kind = environment_class(self.environment), self.partner.kind
        if game.seats == 1 or self.partner.mixture:
            return Opposite(MIXTURE if self.partner.mixture else NOBODY)
        path = "" if kind == SELF else _partners(game).get(kind, kind)
        return Opposite(kind, path, self.partner.openai.cassette_mode == "replay")

    @property
    def members(self) -> "dict[str, Config]":
        """This config with each of its partners alone, by the name that logs have: one, or those of `partner.mixture`."""
        mixture = self.partner.mixture
        return self._alone(mixture, "partner.mixture") if mixture else {self.opposite.name: self}

    @property
    def shares(self) -> dict[str, float]:
        """Share of the games of each of `members`; they add up to 1."""
        weights = {name: member.share for name, member in (self.partner.mixture or {}).items()}
        whole = sum(weights.values())
        return {name: weight / whole for name, weight in weights.items()} or {self.opposite.name: 1.0}

    def _alone(self, mixture: Mapping[str, Member], key: str) -> "dict[str, Config]":
        """Returns this config with each member of a mixture alone. Raises ConfigError; `key`: that of the mixture."""
        base = self.partner.model_dump(exclude={"mixture"})
        changes = {
            name: {"kind": one.kind or name, "args": base["args"] | one.args, "openai": base["openai"] | one.openai}
            for name, one in mixture.items()
        }
        return {
            name: self.changed(partner=checked(PartnerConfig, each, f"{key}.{name}")) for name, each in changes.items()
        }

    @property
    def selfplay(self) -> bool:
        return self.opposite.name == SELF

    @property
    def seats_trained(self) -> int:
        """Dialogues per game that are trained on: one per seat of the policy's."""
        return 2 if self.selfplay else 1

    @property
    def dialogues_played(self) -> int:
        """Dialogues of one step, with slime those of its spare games too."""
        spare = self.slime.spare_games if self.train.backend == "slime" else 0
        return (self.train.games_per_step + spare) * self.train.group_size

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self.output_dir / self.name

    def write(self, path: Path, *, passwords: bool = True, **others: Any) -> None:
        """Writes the complete configuration atomically, as a file that `load_config` reads back.

        Args:
            passwords: True to write those of its URLs, which a run needs and a record does not.
            others: sections of other programs, for the same file.
        """
        data = {**others, ROOT_KEY: self.model_dump(mode="json")}
        # In ASCII: PyYAML folds some Unicode line ends that it writes unescaped.
        text = yaml.safe_dump(data, sort_keys=False)
        write_atomically(path, text if passwords else without_passwords(text))


def _partners(game: type[BaseEnvironment]) -> dict[str, str]:
    """Returns the kinds of partner that a game knows, each with the dotted path of its class."""
    return {**game.partners, "openai": game.partners.get("openai", CHAT_PARTNER)}


def _check_kind(game: type[BaseEnvironment], kind: str, key: str, *further: str) -> None:
    """Raises ValueError or ConfigError if a game has no partner of a kind. `further`: kinds without a class."""
    if game.seats == 1:
        # the default stands in a config that names none
        if kind not in (NOBODY, PartnerConfig().kind) or key != "partner.kind":
            raise ValueError(f"{key} is {kind}, but {game.__name__} has one seat: leave {key} out")
    elif "." in kind:
        load_object(kind, key, "examples.treasure.HonestPartner")
    else:
        _check_name(key, kind, f"partner of {game.__name__}", [*_partners(game), *further])


def _check_name(key: str, name: str, what: str, known: Iterable[str]) -> None:
    """Raises ValueError if a name is neither known nor a dotted path."""
    if name not in known and "." not in name:
        choice = f"choose {', '.join(known)}, or the dotted path of your own{did_you_mean(name, known)}"
        raise ValueError(f"{key} '{name}' is not a {what}: {choice}")


@cache
def _sections() -> frozenset[str]:
    """Returns the dotted names of all sections, the games' own among them."""
    return frozenset({"game", "warmstart.player", *(key.rpartition(".")[0] for key, _ in fields_of(Config))})


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a YAML file and applies overrides such as ``partner.kind=mute`` (values are YAML).

    Args:
        path: a file, the folder of a run, or the name of a config that comes with slim_rl, such as `matching_local`.

    Raises:
        ConfigError: the file cannot be read, is not a mapping, or holds a wrong key or value; the message names the key.

    Examples:
        >>> config = load_config("matching_local", ["partner.kind=mute", "train.steps=2"])
        >>> config.partner.kind, config.train.steps
        ('mute', 2)
    """
    return parse_config(read_yaml(bundled.config_file(path), _HOW_TO_NAME_IT), overrides, source=str(path))


def parse_config(data: Any, overrides: Sequence[str] = (), source: str = "the config") -> Config:
    """Validates a mapping, with or without its `slim_rl` key. Raises ConfigError, as `load_config` does.

    For the slime backend other keys may be next to `slim_rl`: those of slime's plug-ins.
    """
    others: set[str] = set()
    if isinstance(data, Mapping) and ROOT_KEY in data:
        others, data = {*map(str, data)} - {ROOT_KEY}, data[ROOT_KEY]
    data = {} if data is None else data
    if not isinstance(data, Mapping):
        raise ConfigError(f"{source} must be a mapping under the key '{ROOT_KEY}', but is {type(data).__name__}.")
    try:
        changes = [text.removeprefix(f"{ROOT_KEY}.") for text in overrides]
        changed = overridden({}, changes, _sections()).get("partner")
        if isinstance(changed, dict) and "kind" in changed and "mixture" not in changed:
            changes.append("partner.mixture=null")  # a change of the kind plays it alone
        config = checked(Config, overridden(data, changes, _sections()) if changes else data)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    if ours := sorted(others & Config.model_fields.keys()):
        raise ConfigError(f"{source}: '{ours[0]}' beside '{ROOT_KEY}' has no effect; move it into '{ROOT_KEY}'.")
    if others and config.train.backend != "slime":
        raise ConfigError(
            f"{source}: '{min(others)}' beside '{ROOT_KEY}' is not a key slim_rl knows; remove it (keys of slime's plug-ins are for "
            "train.backend slime)."
        )
    return config
