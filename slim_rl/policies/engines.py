"""Engines that sample a model, by name: of an evaluation (`ready_policy`), and of a program's own prompts (`engine`).

    transformers   the checkpoint is loaded into this process
    sglang, vllm   a running server samples its tokens

    with engine("transformers", "Qwen/Qwen3-0.6B") as model:
        model.generate(["What is 2 + 2?"])

With a server, sampling is not seeded: the rest of the batch decides the last bit of a logit, so that no seed would repeat a dialogue.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from slim_rl.config import Config, parse_config
from slim_rl.dialogue.chat import Chat, Messages
from slim_rl.dialogue.players import Player, Policy, PolicyFailure
from slim_rl.errors import ConfigError, SlimError, SlimWarning
from slim_rl.event_loops import wait
from slim_rl.policies import load_tokenizer
from slim_rl.policies.served import SGLangPolicy, VLLMPolicy
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
class Server:
    """Server that answers.

    Attributes:
        url: address without a path.
        model: served model name; "" if unknown.
        context: largest number of tokens of prompt and response together; None if unknown.
    """

    url: str
    model: str = ""
    context: int | None = None


def connect(url: str) -> Server:
    """Returns the server at `url` (without a trailing ``/v1``). Raises SlimError if no server answers."""
    url = url.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--server {url} is not an address. Give one like http://127.0.0.1:30000.")
    try:
        # without a proxy, which does not know this machine's ports
        answer = httpx.get(f"{url}/v1/models", timeout=10, trust_env=False, follow_redirects=True).raise_for_status()
        card = answer.json()["data"][0]
        context = card.get("max_model_len")
        return Server(url, str(card["id"]), context if isinstance(context, int) else None)
    # it answers, and does not describe its model
    except (httpx.HTTPStatusError, AttributeError, LookupError, TypeError):
        return Server(url)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise SlimError(f"No server answers at --server {url} ({error}). Start it.") from error


def check_engine(name: str, server: str | None) -> None:
    """Raises ConfigError if an engine is unknown, lacks the address of a server, or needs none."""
    if name not in ENGINES:
        raise ConfigError(f"The engine '{name}' is unknown. Use {', '.join(ENGINES)}; hf is called transformers.")
    if name == "transformers" and server:
        raise ConfigError("--server needs an engine. Add --engine sglang or --engine vllm.")
    if name in STARTS and not server:
        raise ConfigError(f"--engine {name} needs a running server. Start one ({STARTS[name]}), and add --server URL.")


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


def ready_policy(config: Config, engine: str, address: str | None) -> ReadyPolicy:
    """Returns the policy of `config.policy.model`, sampled by an engine (`check_engine`) at an address.

    Raises SlimError if it cannot be loaded, or its server does not answer.
    """
    check_engine(engine, address)
    settings = config.policy
    if address is None:
        from slim_rl.policies.transformers import load_policy

        return ReadyPolicy(*load_policy(settings))
    chat = Chat(load_tokenizer(settings.model), settings.thinking)
    server = connect(address)
    if server.model and Path(server.model).name != Path(settings.model).name:
        warnings.warn(
            f"The server at {server.url} reports that it serves {server.model}; {settings.model} is assumed, and its tokenizer is used.",
            SlimWarning,
            stacklevel=2,
        )
    made = SGLangPolicy if engine == SGLangPolicy.engine else VLLMPolicy
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
    yield Engine(ready_policy(config, name, server), max_tokens, seed)


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
        self._calls += 1
        free = asyncio.Semaphore(SERVED_AT_ONCE)

        async def reply(number: int, prompt: str | Messages) -> str:
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            async with free:
                ids = self.chat.prompt_ids(messages)
                sampled = await self._policy.sample(ids, self._most, f"{self._calls}/{number}")
            return self.chat.decode(sampled.ids)[0]

        async def replies() -> list[str]:
            return await asyncio.gather(*(reply(number, prompt) for number, prompt in enumerate(prompts)))

        try:
            return wait(replies())
        except PolicyFailure as error:
            raise SlimError(f"The engine returned no reply: {error}.") from error
