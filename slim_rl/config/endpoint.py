"""An OpenAI-compatible endpoint's sections of a config: a partner behind it, or a chat model in the policy's place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from slim_rl.config import hosted
from slim_rl.config.named import named
from slim_rl.config.section import Section


class Price(Section):
    """Price of a model, in US dollars per million tokens."""

    input: float = Field(0.0, ge=0)
    """prompt tokens that were not cached"""
    cached: float = Field(0.0, ge=0)
    """prompt tokens the provider had cached"""
    output: float = Field(0.0, ge=0)
    """tokens of the reply"""

    def cost_usd(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Returns US dollars; cached tokens are part of the input tokens."""
        fresh = input_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * self.cached + output_tokens * self.output) / 1e6


_PRICES = {
    name: Price(input=fresh, cached=cached, output=output) for name, (fresh, cached, output) in hosted.PRICES.items()
}


# keys of a request's body that are a setting of the section
_HAVE_A_SETTING = {name: name for name in ("model", "temperature", "top_p", "max_tokens", "reasoning_effort")} | {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_tokens_to_sample": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "seed": "send_seed",
    "random_seed": "send_seed",
    "headers": "headers",
    "extra_headers": "headers",
    "query": "query",
    "extra_query": "query",
}
# and those that make an answer of another form, or of another price than is counted
_REFUSED = {
    **dict.fromkeys(("messages", "prompt", "input"), "the game writes the messages"),
    **dict.fromkeys(("n", "best_of", "num_return_sequences", "use_beam_search"), "one reply is asked for, and counted"),
    **dict.fromkeys(("stream", "stream_options"), "an answer is read whole"),
    **dict.fromkeys(("tools", "tool_choice", "functions", "function_call", "web_search_options", "plugins"),
                    "a partner has no tools"),
    **dict.fromkeys(("models", "route", "fallbacks", "service_tier", "prediction", "modalities", "audio"),
                    "it changes the price of an answer"),
    "extra_body": "its keys belong into extra itself",
    "api_key": "a key is read from the environment alone (api_key_env)",
}  # fmt: skip


_FIXED_HEADERS = {"accept-encoding", "content-type", "content-length", "host"}  # set by the client

LEAST_CONCURRENCY, MOST_CONCURRENCY = 64, 1024  # of requests to an endpoint, where the config names no number


class OpenAIConfig(Section):
    """A partner behind an OpenAI-compatible endpoint. The API key comes from the environment, never from the config."""

    model: str = Field(
        "gpt-4.1-2025-04-14",
        description="model name; a dated snapshot stays the same partner for the whole run; public pages date GPT-4.1's shutdown "
        f"{hosted.SHUTDOWNS['gpt-4.1']} (not verified), successors are in docs/how-to/partners.md",
    )
    base_url: str | None = None
    """endpoint, such as http://localhost:8100/v1 for a local model; null: OpenAI"""
    api_key_env: str = "OPENAI_API_KEY"
    """environment variable that holds the key; optional with a base_url"""
    headers: dict[str, str] = Field({})
    """further headers of each request; {key} in a value stands for the API key, as in {api-key: "{key}"}"""
    query: dict[str, str] = Field({})
    """parameters of each request's URL, such as {api-version: "2024-10-21"}"""
    prompt: Path | None = None
    """file with the partner's rules; null: the game's own"""

    temperature: float | None = Field(0.0, ge=0)
    """null: not sent; if the model refuses it, it is left out and the log says so"""
    top_p: float | None = Field(None, gt=0, le=1)
    """null: not sent; if refused, as temperature"""
    max_tokens: int | None = Field(300, ge=1)
    """tokens of one reply, thoughts included; sent as max_completion_tokens if the model needs that; null: not
    sent"""
    reasoning_effort: str | None = None
    """effort of a reasoning model: minimal, low, medium, high; null: not sent"""
    send_seed: bool = True
    """send a seed derived from the dialogue's, for endpoints that support it"""
    extra: dict[str, Any] = Field({})
    """further keys of the request body, such as chat_template_kwargs; none that has a setting or changes the price"""
    note_plan_worth: bool = True
    """a note under each proposal says what it is worth to the partner, so that the model does not have to add up"""
    malformed_retries: int = Field(2, ge=0)
    """times that the model is asked again after a malformed reply, with the game's error"""

    reply_chars: int = Field(8000, ge=1)
    """a longer reply counts as cut off, and the model is asked again"""
    response_bytes: int = Field(2_000_000, ge=1000)
    """size limit of one response; a longer one counts as failed"""

    concurrency: Annotated[int | None, named(may_change=True)] = Field(
        None,
        ge=1,
        description="requests in flight per process; null: the dialogues of a step (train.games_per_step × train.group_size), "
        f"but at least {LEAST_CONCURRENCY} and at most {MOST_CONCURRENCY}",
    )
    requests_per_minute: Annotated[float | None, named(may_change=True)] = Field(None, gt=0)
    """your account's rate limit; calls wait to stay below it; null: none"""
    tokens_per_minute: Annotated[float | None, named(may_change=True)] = Field(None, gt=0)
    """rate limit of tokens, input and output together; null: none"""
    request_seconds: Annotated[float, named(may_change=True)] = Field(60.0, gt=0)
    """wall time of one request"""
    turn_seconds: Annotated[float, named(may_change=True)] = Field(300.0, gt=0)
    """wall time of one reply, including retries but not queueing"""
    max_retries: Annotated[int, named(may_change=True)] = Field(8, ge=0)
    """retries of a failed request; a rate limit (429) does not count"""
    backoff_seconds: Annotated[float, named(may_change=True)] = Field(0.5, gt=0)
    """first wait before a retry; doubles with each retry, with full jitter"""
    max_backoff_seconds: Annotated[float, named(may_change=True)] = Field(20.0, gt=0)
    """the longest of these waits"""

    outage_failures: Annotated[int, named(may_change=True)] = Field(8, ge=1)
    """the endpoint counts as down after this many failures in a row, over all games, without an answer for outage_seconds"""
    outage_seconds: Annotated[float, named(may_change=True)] = Field(5.0, ge=0)
    """see outage_failures"""
    outage_probe_seconds: Annotated[float, named(may_change=True)] = Field(10.0, gt=0)
    """wait between probes of an endpoint that is down"""
    outage_wait_minutes: Annotated[float, named(may_change=True)] = Field(15.0, ge=0)
    """the longest that calls wait for an endpoint that is down; then the run stops and can be resumed"""

    budget_usd: Annotated[float | None, named(may_change=True)] = Field(None, gt=0)
    """budget of the whole run, over all its starts and processes; at this sum the run saves and stops; needs a price for the
    model (`prices`); at its start a run prints what it may cost"""
    prices: dict[str, Price] = Field(
        _PRICES,
        description="prices by model name, with or without a snapshot's date; the built-in table is of "
        f"{hosted.AS_OF} and not verified; your bill decides",
    )

    cassette: Path | None = None
    """sqlite file that keeps every exchange"""
    cassette_mode: Literal["auto", "record", "replay"] = "auto"
    """auto: ask the endpoint only what the cassette does not hold; record: ask everything again; replay: ask nothing"""

    @property
    def price(self) -> Price | None:
        """Price of the model, or of the model that it is a dated snapshot of; None if neither has one."""
        name = hosted.entry_of(self.model, self.prices)
        return self.prices[name] if name is not None else None

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str | None) -> str | None:
        try:
            parts = urlsplit(url or "https://api.openai.com")
            _ = parts.port, (parts.hostname or "").encode("idna")
            usable = (
                parts.scheme in ("http", "https")
                and bool(parts.hostname)
                and not parts.query
                and "@" not in parts.netloc
            )
        except ValueError:
            usable = False
        if not usable:
            raise ValueError(
                "must be like http://localhost:8000/v1: http or https, a host, no query (set query), no password (set headers)"
            )
        return url

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            sendable = (name + value).isascii() and (name + value).isprintable()
            if not sendable or not name.replace("-", "a").isidentifier() or name.lower() in _FIXED_HEADERS:
                raise ValueError(f"{name!r} cannot be sent: remove or correct it")
        return headers

    @field_validator("extra")
    @classmethod
    def _check_extra(cls, extra: dict[str, Any]) -> dict[str, Any]:
        for key in extra:
            if key in _HAVE_A_SETTING:
                raise ValueError(f"{key} has a setting: remove it here and set {_HAVE_A_SETTING[key]} instead")
            if key in _REFUSED:
                raise ValueError(f"{key} cannot be sent, since {_REFUSED[key]}: remove it")
        return extra


class ChatPolicyConfig(OpenAIConfig):
    """A chat model behind an OpenAI-compatible endpoint as the policy (`slim-rl evaluate --policy openai:MODEL`). It plays by
    text only. The other keys are those of `partner.openai`.
    """

    model: str = ""
    """set by --policy openai:MODEL"""
    prompt: Path | None = None
    """file with instructions that follow the game's rules; null: none"""
    temperature: float | None = Field(1.0, ge=0)
    """as policy.temperature; null: not sent"""
    max_tokens: int | None = Field(512, ge=1)
    """tokens of one turn, as limits.turn_tokens; a turn that is cut ends its game; null: not sent"""
