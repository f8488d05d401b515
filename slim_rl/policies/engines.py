"""Engines of an evaluation, by name.

    transformers   the checkpoint is loaded into this process
    sglang, vllm   a server samples its tokens: a running one (`server`), or one that is started for the length of the block

With a server, sampling is not seeded: the rest of the batch decides the last bit of a logit, so that no seed would repeat a dialogue.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from slim_rl.config import Config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.loop import Player
from slim_rl.errors import ConfigError, SlimWarning
from slim_rl.policies import load_tokenizer
from slim_rl.policies.servers import Server, connect, starting

ENGINES = ("transformers", "sglang", "vllm")
SERVED_AT_ONCE = 1000  # dialogues played at once with a server, by default


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Engine that samples checkpoints.

    Attributes:
        name: one of `ENGINES`.
        server: address of a running server; None: start one.
        arguments: further command-line arguments of a started server.

    Raises:
        ConfigError: the engine is unknown, or it has no server.
    """

    name: str = "transformers"
    server: str | None = None
    arguments: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            today = "; hf is called transformers" if self.name in ("hf", "huggingface") else ""
            raise ConfigError(
                f"The engine '{self.name}' is unknown. Use {', '.join(ENGINES[:-1])} or {ENGINES[-1]}{today}."
            )
        if self.name == "transformers" and (self.server or self.arguments):
            raise ConfigError("--server and --engine-args need a server. Add --engine sglang or --engine vllm.")
        if self.server and self.arguments:
            raise ConfigError(
                "--engine-args are for a started server, but --server names a running one. Remove one of them."
            )

    @property
    def at_once(self) -> int | None:
        """Default number of dialogues played at once; None: all of them."""
        return None if self.name == "transformers" else SERVED_AT_ONCE


@dataclass(frozen=True, slots=True)
class ReadyPolicy:
    """Policy that is ready to play.

    Attributes:
        chat: its token boundaries; None if it plays by text alone.
        context: largest number of tokens of prompt and response together; None if unknown.
    """

    policy: Player
    chat: Chat | None = None
    context: int | None = None

    def reseed(self, seed: int) -> None:
        """Sets the seed of sampling in this process."""
        if (reseed := getattr(self.policy, "reseed", None)) is not None:
            reseed(seed)


@contextmanager
def ready_policy(config: Config, engine: EngineChoice, log: Path) -> Iterator[ReadyPolicy]:
    """Yields the policy of `config.policy.model`.

    Args:
        log: log file of a started server.

    Raises:
        SlimError: the model cannot be loaded, or its server does not answer.
    """
    settings = config.policy
    if engine.name == "transformers":
        from slim_rl.policies.transformers import load_policy

        yield ReadyPolicy(*load_policy(settings))
        return
    from slim_rl.policies.sglang import SGLangPolicy
    from slim_rl.policies.vllm import VLLMPolicy

    # a wrong name is found before a server is waited for
    chat = Chat(load_tokenizer(settings.model), settings.thinking)
    with ExitStack() as stack:
        if engine.server:
            server = connect(engine.server)
            _compare(server, settings.model)
        else:
            server = stack.enter_context(starting(engine.name, settings.model, log, engine.arguments)).wait()
        made = SGLangPolicy if engine.name == SGLangPolicy.engine else VLLMPolicy
        policy = made(
            server.url,
            server.model or settings.model,
            temperature=settings.temperature,
            top_p=settings.top_p,
            stop_ids=chat.stop_ids,
        )
        yield ReadyPolicy(policy, chat, server.context)


def _compare(server: Server, model: str) -> None:
    """Warns if a server seems to serve another model than the one whose tokenizer is used."""
    if server.model and Path(server.model).name != Path(model).name:
        warnings.warn(
            f"The server at {server.url} reports that it serves {server.model}; {model} is assumed, and its tokenizer is used.",
            SlimWarning,
            stacklevel=2,
        )
