"""State shared by all dialogues of a process.

It is made on first use from ``args.slim_rl``, which slime reads from the YAML file of ``--custom-config-path``, and made again only if
that changes.
"""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from slime.rollout.sglang_rollout import GenerateState
from slime.utils.http_utils import post as slime_post

from slim_rl.backends.slime import UNPLAYABLE
from slim_rl.config import ROOT_KEY, Config, Limits, parse_config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.partner import Partner, PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import View
from slim_rl.errors import ConfigError
from slim_rl.policies.served import Connection

_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class RolloutContext:
    """The rollout worker and the connections to the engines (None: slime's) of one event loop."""

    config: Config
    chat: Chat
    worker: RolloutWorker
    connection: Connection | None

    async def post(self, url: str, body: dict[str, Any], headers: dict[str, str] | None) -> Any:
        """Sends one request, without retries."""
        if self.connection is not None:
            return await self.connection.post(url, body, headers)
        # By itself slime tries 60 times at one second, for any error, and does not notice an abort meanwhile.
        return await slime_post(url, body, max_retries=1, headers=headers)

    def limits(self, args: Namespace, max_new_tokens: int, evaluation: bool) -> Limits:
        """The config's limits, within slime's: `max_new_tokens` bounds the response, as it does in slime's own rollouts."""
        context = getattr(args, "eval_max_context_len" if evaluation else "rollout_max_context_len", None)
        engine = getattr(args, "sglang_context_length", None)
        return self.config.limits.within(
            turn_tokens=max_new_tokens, dialogue_tokens=max_new_tokens, context_tokens=(context, engine)
        )


def config_of(args: Namespace) -> Config:
    """Returns the run's config.

    Raises:
        ConfigError: slime got no config, an invalid one, or a flag that the hook refuses.
    """
    data = getattr(args, ROOT_KEY, None)
    if data is None:
        raise ConfigError(
            f"slime was given no slim_rl config: pass --custom-config-path with a YAML file whose one key is '{ROOT_KEY}', "
            "for example configs/matching.yaml."
        )
    content = json.dumps(data, sort_keys=True, default=str)
    if content not in _configs:
        config = parse_config(data, source=getattr(args, "custom_config_path", None) or f"args.{ROOT_KEY}")
        for flag, reason in UNPLAYABLE.items():
            if getattr(args, flag.removeprefix("--").replace("-", "_"), False):
                raise ConfigError(f"{flag} is refused: {reason}.")
        _configs[content] = config
    return _configs[content]


def process_of(args: Namespace) -> RolloutContext:
    """Returns the state shared by the dialogues of the running event loop.

    A partner's connections belong to the loop that opened them, and slime may use two loops.
    """
    config = config_of(args)
    loop = asyncio.get_running_loop()
    here = _processes.get(loop)
    if here is None or here.config is not config:
        chat = Chat(GenerateState(args).tokenizer, config.policy.thinking)
        # slime's client where it spreads requests over Ray actors; alone, it is too slow for many dialogues.
        connection = None if getattr(args, "use_distributed_post", False) else Connection()
        worker = RolloutWorker(config, chat)
        if save := getattr(args, "save", None):  # the run's folder
            worker.keep_spend(Path(save))
        here = _processes[loop] = RolloutContext(config, chat, worker, connection)
    return here


_configs: dict[str, Config] = {}
_processes: WeakKeyDictionary[asyncio.AbstractEventLoop, RolloutContext] = WeakKeyDictionary()


@dataclass
class Interruptible:
    """Partner whose request in flight is cancelled when slime aborts the rollout by a flag.

    Without it, slime would wait at the end of every over-sampled rollout for the slowest reply in flight.
    """

    partner: Partner
    state: GenerateState

    @property
    def identity(self) -> dict[str, Any]:
        return self.partner.identity

    async def act(self, view: View) -> Turn:
        reply = asyncio.ensure_future(self.partner.act(view))
        try:
            # `aborted` is a plain flag that cannot be awaited: so it is looked at once a second.
            while not (await asyncio.wait((reply,), timeout=_LOOK_SECONDS))[0]:
                if self.state.aborted:
                    raise PartnerFailure("slime aborted the rollout", StopReason.ABORTED)
            return reply.result()
        finally:
            reply.cancel()
