"""Engines that sample a model, by name.

    transformers   the checkpoint is loaded into this process
    sglang, vllm   a running server samples its tokens

With a server, sampling is not seeded: the rest of the batch decides the last bit of a logit, so that no seed would repeat a dialogue.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import httpx

from slim_rl.config import Config
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.players import Player
from slim_rl.errors import ConfigError, SlimError, SlimWarning
from slim_rl.policies import load_tokenizer
from slim_rl.policies.served import SGLangPolicy, VLLMPolicy

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
