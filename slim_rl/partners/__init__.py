"""Who sits opposite the policy. `make_partner` makes the one a config asks for, and imports it only then."""

from __future__ import annotations

from slim_rl.config import PartnerConfig
from slim_rl.dialogue.partner import Partner
from slim_rl.errors import ConfigError


def make_partner(config: PartnerConfig) -> Partner:
    """The partner of `config.kind`. One object serves all dialogues of a process.

    Raises:
        ConfigError: a key that the kind needs is missing, or the kind is "self", where the policy plays both seats.
        DataError: the log to replay cannot be used.
    """
    if config.kind == "self":
        raise ConfigError(
            "partner.kind is 'self': the policy plays both seats, so there is no partner to make; choose another kind."
        )
    if config.kind == "openai":
        from slim_rl.partners.openai_chat import OpenAIPartner

        return OpenAIPartner.from_config(config)
    if config.kind == "replay":
        from slim_rl.partners.replay import ReplayPartner

        if config.replay is None:
            raise ConfigError(
                "partner.kind is 'replay' but partner.replay is not set: give the path of a dialogue log."
            )
        return ReplayPartner(config.replay)
    from slim_rl.games.matching.partners.scripted import ForthcomingPartner, MutePartner, ShyPartner

    scripted = {"shy": ShyPartner, "forthcoming": ForthcomingPartner, "mute": MutePartner}
    return scripted[config.kind](config.accept_fraction)
