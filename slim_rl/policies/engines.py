"""Engines that sample a model, by name: of an evaluation (`ready_policy`), and of a program's own prompts (`engine`).

    transformers   the checkpoint is loaded into this process
    sglang, vllm   a running server samples its tokens

    with engine("transformers", "Qwen/Qwen3-0.6B") as model:
        model.generate(["What is 2 + 2?"])
        talk = model.conversation("Be brief.")
        talk.reply("Hello.")

With a server, sampling is not seeded: the rest of the batch decides the last bit of a logit, so that no seed would repeat a dialogue.

Invariant: a conversation's input is its last input, the sampled tokens, and the next message, as in training; nothing is encoded twice.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat, Messages
from slim_rl.dialogue.players import Player, Policy, PolicyFailure, Sampled
from slim_rl.errors import ConfigError, SlimError, SlimWarning
from slim_rl.event_loops import wait
from slim_rl.policies import load_tokenizer
from slim_rl.policies.served import SGLangPolicy, VLLMPolicy
from slim_rl.policies.servers import connect
from slim_rl.seeds import seed_of

# engine -> command that starts its server
STARTS = {
    "sglang": "python -m sglang.launch_server --model-path MODEL",
    # logprobs of the sampled distribution, and no sampling settings of the checkpoint
    "vllm": "vllm serve MODEL --logprobs-mode processed_logprobs --generation-config vllm",
}
ENGINES = ("transformers", *STARTS)
SERVED_AT_ONCE = 1000  # dialogues played at once with a server, by default


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Engine that samples checkpoints.

    Attributes:
        name: one of `ENGINES`.
        server: address of a running server; None for transformers.

    Raises:
        ConfigError: the engine is unknown, or lacks a server, or needs none.
    """

    name: str = "transformers"
    server: str | None = None

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            today = "; hf is called transformers" if self.name in ("hf", "huggingface") else ""
            raise ConfigError(
                f"The engine '{self.name}' is unknown. Use {', '.join(ENGINES[:-1])} or {ENGINES[-1]}{today}."
            )
        if self.name == "transformers" and self.server:
            raise ConfigError("--server needs an engine. Add --engine sglang or --engine vllm.")
        if self.name in STARTS and not self.server:
            raise ConfigError(
                f"--engine {self.name} needs a running server. Start one ({STARTS[self.name]}), and add --server URL."
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


def ready_policy(config: Config, engine: EngineChoice) -> ReadyPolicy:
    """Returns the policy of `config.policy.model`. Raises SlimError if it cannot be loaded, or its server does not answer."""
    settings = config.policy
    if engine.name == "transformers":
        from slim_rl.policies.transformers import load_policy

        return ReadyPolicy(*load_policy(settings))
    chat = Chat(load_tokenizer(settings.model), settings.thinking)
    assert engine.server is not None
    server = connect(engine.server)
    if server.model and Path(server.model).name != Path(settings.model).name:
        warnings.warn(
            f"The server at {server.url} reports that it serves {server.model}; {settings.model} is assumed, and its tokenizer is used.",
            SlimWarning,
            stacklevel=2,
        )
    made = SGLangPolicy if engine.name == SGLangPolicy.engine else VLLMPolicy
    sampling = {"temperature": settings.temperature, "top_p": settings.top_p}
    policy = made(server.url, server.model or settings.model, stop_ids=chat.stop_ids, **sampling)
    return ReadyPolicy(policy, chat, server.context)


# --- a program's own prompts


@contextmanager
def engine(
    name: str = "transformers",
    model: str = "data/warmstart",
    *,
    server: str | None = None,
    max_tokens: int = 512,
    seed: int = 0,
    **policy: Any,
) -> Iterator[Engine]:
    """Opens a model for the length of the block.

    Args:
        name: transformers (in this process), sglang or vllm (a running server).
        model: folder or hub name.
        server: address of the server; None for transformers.
        max_tokens: largest number of tokens per reply.
        seed: seed of sampling in this process; a server samples without one.
        policy: keys of the config's section `policy`, such as temperature.

    Raises:
        SlimError: the engine is unknown, the model cannot be loaded, or no server answers.
    """
    config = parse_config({"policy": {**policy, "model": model}})
    yield Engine(ready_policy(config, EngineChoice(name, server)), max_tokens, seed)


class Engine:
    """Open model (see `engine`)."""

    def __init__(self, ready: ReadyPolicy, max_tokens: int, seed: int) -> None:
        assert ready.chat is not None
        self.chat, self._most = ready.chat, max_tokens
        self._policy: Policy = ready.policy  # type: ignore[assignment]  # with a chat it has tokens
        self._calls = 0
        ready.policy.reseed(seed_of(seed, "engine"))

    def generate(self, prompts: Sequence[str | Messages]) -> list[str]:
        """Returns the model's reply to each prompt, without its thoughts.

        Args:
            prompts: texts of a user, or messages of a conversation (dicts with role and content).

        Raises:
            SlimError: the engine returned no tokens for one of them.
        """
        messages = [[{"role": "user", "content": each}] if isinstance(each, str) else each for each in prompts]
        return [
            self.chat.decode(sampled.ids)[0] for sampled in self.sample([self.chat.prompt_ids(m) for m in messages])
        ]

    def conversation(self, system: str = "") -> Conversation:
        """Returns a new conversation, with a system message unless `system` is empty."""
        return Conversation(self, system)

    def sample(self, inputs: Sequence[list[int]]) -> list[Sampled]:
        """Returns a sampled turn after each input of token ids. Raises SlimError if the engine returned none."""
        self._calls += 1
        free = asyncio.Semaphore(SERVED_AT_ONCE)

        async def one(number: int, ids: list[int]) -> Sampled:
            async with free:
                return await self._policy.sample(list(ids), self._most, f"{self._calls}/{number}")

        async def all_of_them() -> list[Sampled]:
            return await asyncio.gather(*(one(number, ids) for number, ids in enumerate(inputs)))

        try:
            return wait(all_of_them())
        except PolicyFailure as error:
            raise SlimError(f"The engine returned no reply: {error}.") from error


class Conversation:
    """Conversation with a model, one `reply` at a time."""

    def __init__(self, engine: Engine, system: str = "") -> None:
        self.messages = [{"role": "system", "content": system}] if system else []
        self._engine = engine
        self._ids: list[int] = []
        self._last: list[int] = []

    def reply(self, text: str) -> str:
        """Returns the model's reply to `text`, without its thoughts. Raises SlimError if the engine returned none."""
        self.messages.append({"role": "user", "content": text})
        chat = self._engine.chat
        begun = (
            self._ids + self._last + chat.turn_ids(self._last, text) if self._last else chat.prompt_ids(self.messages)
        )
        (sampled,) = self._engine.sample([begun])
        self._ids, self._last = begun, sampled.ids
        answer, _ = chat.decode(sampled.ids)
        self.messages.append({"role": "assistant", "content": answer})
        return answer
