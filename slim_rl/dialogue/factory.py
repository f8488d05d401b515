"""Factories of the environment and the partner that a config names, imported only when they are made.

A partner is made by its class's `from_config(partner_config, make_env)`, if there is one. Otherwise its constructor gets
`partner.args`, and those of `partner.accept_fraction`, `partner.explain_rejections` and `partner.replay` that it takes.
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
    """Returns a new environment of the run's game.

    Its constructor gets the settings of the `game` section: all of them, or, if the game has a `Settings` model, those that it
    takes. Raises ConfigError if the constructor refuses them.
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
    """Returns the partner that the config names; None in self-play and in one-seat games. One object serves a whole process.

    Raises:
        ConfigError: the partner lacks a key, or refuses its arguments.
        DataError: the log to replay cannot be used.
    """
    game, kind = environment_class(config.environment), config.partner.kind
    if kind == SELF or game.seats == 1:
        return None
    partner = _made(config, kind)
    lacks = [name for name in ("identity", "act") if not hasattr(partner, name)]
    if lacks:
        raise ConfigError(
            f"partner.kind={kind} lacks {' and '.join(lacks)}. Add it to the class (docs/reference/environment-api.md)."
        )
    if not takes(partner.act, 1) or (inspect.isroutine(partner.act) and not inspect.iscoroutinefunction(partner.act)):
        raise ConfigError(
            f"partner.kind={kind}: its act must be async act(view) -> Turn. Correct the class (docs/reference/environment-api.md)."
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
            f"partner.args={config.partner.args} does not suit partner.kind={kind}: {error}. Set what it takes, or --set partner.args={{}}."
        ) from error


def partner_class(config: Config, kind: str) -> Any:
    """Returns the partner class of a name in the config's game, or of a dotted path.

    Raises ConfigError if it does not exist.
    """
    return load_object(_named(config).get(kind, kind), "partner.kind", "examples.treasure.HonestPartner")


def costs_money(config: Config) -> bool:
    """Returns True if the config's partner may cost money: its class has `keep_spend` (`dialogue.partner.Partner`)."""
    kind = config.partner.kind
    alone = kind == SELF or environment_class(config.environment).seats == 1
    return not alone and hasattr(partner_class(config, kind), "keep_spend")


def _named(config: Config) -> dict[str, str]:
    """Returns the dotted path of each partner with a short name."""
    return {**PARTNERS, **environment_class(config.environment).partners}


def partner_name(config: Config, partner: Partner) -> str:
    """Returns the `kind` that dialogues with the config's partner record.

    It is the short name in the config. A partner named by a dotted path is recorded by the kind in its own identity, unless another
    partner has that name: a subclass may have inherited it.
    """
    named, kind = _named(config), config.partner.kind
    claim = partner.identity.get("kind")
    if kind in named or not claim:
        return kind
    anothers = claim in named and partner_class(config, claim) is not type(partner)
    return kind if anothers else str(claim)


def _taken(made: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments that the constructor takes."""
    takes = _parameters(made)
    return {name: value for name, value in arguments.items() if name in takes}


@cache  # called for every game
def _parameters(made: Any) -> frozenset[str]:
    return frozenset(inspect.signature(made).parameters)
