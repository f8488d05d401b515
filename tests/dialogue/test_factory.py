"""A partner of one's own, made from its dotted path: what it lacks, and what does not suit it, is said before a game begins."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.players import Partner, make_partner
from slim_rl.dialogue.record import Turn
from slim_rl.environment import View
from slim_rl.errors import ConfigError


class Stranger:
    """No subclass of `Partner`."""


class Named(Partner):
    identity: ClassVar[dict[str, Any]] = {"kind": "named"}

    async def act(self, view: View) -> Turn:
        return Turn("[accept]")


def partner(name: str, **args: Any) -> Any:
    return make_partner(parse_config({"partner": {"kind": f"{__name__}.{name}", "args": args}}))


def test_a_partner_of_ones_own_is_an_identity_and_a_reply() -> None:
    assert isinstance(partner("Named"), Named)
    with pytest.raises(ConfigError, match=r"partner\.kind=.*Stranger is not a subclass of slim_rl\.Partner"):
        partner("Stranger")


def test_partner_args_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Named\(\) takes no arguments\. .*--set 'partner\.args=\{\}'"):
        partner("Named", max_pairs=1)
