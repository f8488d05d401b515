"""State shared by all dialogues of an event loop.

It is made on first use from ``args.slim_rl``, which slime reads from the YAML file of ``--custom-config-path``, and made again only if
that changes.
"""

import asyncio
import json
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from slime.rollout.sglang_rollout import GenerateState

from slim_rl.config import ROOT_KEY, Config, Limits, parse_config, read_yaml
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import ConfigError
from slim_rl.http import Client


@dataclass(frozen=True)
class RolloutContext:
    """Config, token boundaries, rollout worker and connections to the engines."""

    config: Config
    chat: Chat
    worker: RolloutWorker
    # slime's own client looks through all its connections at every request: too slow for many dialogues
    client: Client = field(default_factory=Client)

    def limits(self, args: Namespace, max_new_tokens: int, evaluation: bool) -> Limits:
        """Returns the config's limits, within slime's: `max_new_tokens` bounds the response, as it does in slime's own rollouts."""
        context = getattr(args, "eval_max_context_len" if evaluation else "rollout_max_context_len", None)
        engine = getattr(args, "sglang_context_length", None)
        limits = self.config.limits.within(turn_tokens=max_new_tokens, dialogue_tokens=max_new_tokens)
        return limits.within(context_tokens=context).within(context_tokens=engine)


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
        for flag, reason in read_yaml(Path(__file__).with_name("refused.yaml"))["dialogue"].items():
            if getattr(args, flag.removeprefix("--").replace("-", "_"), False):
                raise ConfigError(f"{flag} is refused: {reason}.")
        _configs[content] = config
    return _configs[content]


def context_of(args: Namespace) -> RolloutContext:
    """Returns the state of the running event loop: a partner's connections belong to the loop that opened them."""
    config = config_of(args)
    loop = asyncio.get_running_loop()
    here = _contexts.get(loop)
    if here is None or here.config is not config:
        chat = Chat(GenerateState(args).tokenizer, config.policy.thinking)
        worker = RolloutWorker(config, chat)
        if save := getattr(args, "save", None):  # the run's folder
            worker.keep_spend(Path(save))
        here = _contexts[loop] = RolloutContext(config, chat, worker)
    return here


_configs: dict[str, Config] = {}
_contexts: WeakKeyDictionary[asyncio.AbstractEventLoop, RolloutContext] = WeakKeyDictionary()
