"""Model that answers the prompts of a program, sampled by a named engine.

    with engine("transformers", "Qwen/Qwen3-0.6B") as model:
        model.generate(["What is 2 + 2?"])
        talk = model.conversation("Be brief.")
        talk.reply("Hello.")

Invariant: a conversation's input is its last input, the sampled tokens, and the next message, as in training; nothing is encoded twice.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slim_rl.config import parse_config
from slim_rl.dialogue.chat import Messages
from slim_rl.dialogue.policy import Policy, PolicyFailure, Sampled
from slim_rl.errors import SlimError
from slim_rl.event_loops import wait
from slim_rl.policies.engines import SERVED_AT_ONCE, EngineChoice, ReadyPolicy, ready_policy
from slim_rl.seeds import seed_of


@contextmanager
def engine(
    name: str = "transformers",
    model: str = "data/warmstart",
    *,
    server: str | None = None,
    arguments: Sequence[str] = (),
    max_tokens: int = 512,
    seed: int = 0,
    **policy: Any,
) -> Iterator[Engine]:
    """Opens a model for the length of the block.

    Args:
        name: transformers (in this process), sglang or vllm (a server).
        model: folder or hub name.
        server: address of a running server; None: one is started.
        arguments: further command-line arguments of a started server.
        max_tokens: largest number of tokens per reply.
        seed: seed of sampling in this process; a server samples without one.
        policy: keys of the config's section `policy`, such as temperature.

    Raises:
        SlimError: the engine is unknown, the model cannot be loaded, or no server answers.
    """
    config = parse_config({"policy": {**policy, "model": model}})
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"  # its end is in the error
        with ready_policy(config, EngineChoice(name, server, arguments), log) as ready:
            yield Engine(ready, max_tokens, seed)


class Engine:
    """Open model (see `engine`)."""

    def __init__(self, ready: ReadyPolicy, max_tokens: int, seed: int) -> None:
        assert ready.chat is not None
        self.chat, self._most = ready.chat, max_tokens
        self._policy: Policy = ready.policy  # type: ignore[assignment]  # with a chat it has tokens
        self._calls = 0
        ready.reseed(seed_of(seed, "engine"))

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
