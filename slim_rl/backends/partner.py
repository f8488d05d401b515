"""The run's partner, made once before a cluster starts: what it lacks is said in seconds, not when trainer and engines are up."""

from __future__ import annotations

import os

from slim_rl.config import Config
from slim_rl.dialogue.factory import make_partner
from slim_rl.partners.client import OPENAI_URL


def try_partner(config: Config) -> None:
    """Makes the config's partner, and lets go of it. Its key may be missing where RAY_ADDRESS names another cluster, whose workers may
    have it.

    Raises:
        SlimError: it cannot be made: a key is missing, or its prompt, its cassette or the log that it repeats cannot be used.
    """
    if os.environ.get("RAY_ADDRESS") and config.partner.openai.base_url is None:
        config = config.changed(partner={"openai": {"base_url": OPENAI_URL}})  # an endpoint that is named needs no key
    make_partner(config)
