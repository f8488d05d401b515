"""Makes the environment and the partner that a config names, and imports them only then.

A partner's class is made by its `from_config(partner_config, make_env)`, if it has that classmethod; else it is called with
`partner.args`, and with `partner.accept_fraction`, `partner.explain_rejections` and `partner.replay` if its constructor takes them.
"""

from __future__ import annotations

import inspect
from functools import cache, partial
from typing import Any

from pydantic import BaseModel

from slim_rl.config import PARTNERS, SELF, Config
from slim_rl.dialogue.partner import Partner
from slim_rl.environment import BaseEnvironment, environment_class, load_object
from slim_rl.errors import ConfigError
from slim_rl.signatures import takes


def make_environment(config: Config) -> BaseEnvironment:
    """A fresh environment of the run's game.

    Its constructor is given the settings of the `game` section: all of them, or, where the game has a `Settings` model, those
    that it takes. Raises ConfigError if the arguments do not suit it.
    """
    made = environment_class(config.environment)
    game: Any = config.game
    arguments = game.model_dump() if isinstance(game, BaseModel) else dict(game)
    if made.Settings is not None:
        arguments = _taken(made, arguments)
    try:
        return made(**arguments)
    except TypeError as error:
        raise ConfigError(f"The game section does not suit {config.environment}: {error}.") from error


def make_partner(config: Config) -> Partner | None:
    """The partner that the config names, or None where the policy is alone: in self-play, and in a game for one. One object
    serves all dialogues of a process.

    Raises:
        ConfigError: a key that the partner needs is missing, or its arguments do not suit it.
        DataError: the log to replay cannot be used.
    """
    game, kind = environment_class(config.environment), config.partner.kind
    if kind == SELF or game.seats == 1:
        return None
    partner = _made(config, kind)
    lacks = [name for name in ("identity", "act") if not hasattr(partner, name)]
    if lacks:
        raise ConfigError(
            f"partner.kind: {kind} has no {' and no '.join(lacks)}; a partner has both (docs/reference/environment-api.md)."
        )
    if not takes(partner.act, 1) or (inspect.isroutine(partner.act) and not inspect.iscoroutinefunction(partner.act)):
        raise ConfigError(
            f"partner.kind: {kind}.act must be async act(view) -> Turn. Correct the class (docs/reference/environment-api.md)."
        )
    return partner


def _made(config: Config, kind: str) -> Partner:
    made = partner_class(config, kind)
    if hasattr(made, "from_config"):
        settings = config.partner.changed(openai={"concurrency": config.partner_concurrency})
        return made.from_config(settings, partial(make_environment, config))  # type: ignore[no-any-return]
    shared = _taken(
        made, {name: getattr(config.partner, name) for name in ("accept_fraction", "explain_rejections", "replay")}
    )
    try:
        return made(**(shared | config.partner.args))  # type: ignore[no-any-return]
    except TypeError as error:
        raise ConfigError(
            f"partner.args do not suit the partner {kind}: {error}; set them to what it takes (--set partner.args={{}}: nothing)."
        ) from error


def partner_class(config: Config, kind: str) -> Any:
    """The class of the partner of that name, or dotted path, in the config's game. Raises ConfigError if there is none."""
    return load_object(_named(config).get(kind, kind), "partner.kind", "examples.treasure.HonestPartner")


def costs_money(config: Config) -> bool:
    """Whether the config's partner is behind an endpoint that may be paid for, by whatever name it goes (`dialogue.partner.Partner`)."""
    kind = config.partner.kind
    alone = kind == SELF or environment_class(config.environment).seats == 1
    return not alone and hasattr(partner_class(config, kind), "keep_spend")


def _named(config: Config) -> dict[str, str]:
    """The partners that have a name -> their dotted paths."""
    return {**PARTNERS, **environment_class(config.environment).partners}


def partner_name(config: Config, partner: Partner) -> str:
    """The `kind` that dialogues with the config's partner record: the name it goes by, as a subclass may say its parent's. One that
    goes by a dotted path says itself what it is, where that is not the name of another partner.
    """
    named, kind = _named(config), config.partner.kind
    says = partner.identity.get("kind")
    if kind in named or not says:
        return kind
    anothers = says in named and partner_class(config, says) is not type(partner)
    return kind if anothers else str(says)


def _taken(made: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that the constructor takes."""
    takes = _parameters(made)
    return {name: value for name, value in arguments.items() if name in takes}


@cache  # for it is asked of every game that is dealt
def _parameters(made: Any) -> frozenset[str]:
    return frozenset(inspect.signature(made).parameters)
