"""An OpenAI-compatible endpoint's sections of a config: a partner behind it, or a chat model in the policy's place."""

import contextlib
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from slim_rl.config.reading import read_yaml
from slim_rl.config.section import ASIDE, PACE, Key, Section


class Price(Section):
    """Price of a model, in US dollars per million tokens."""

    input: float = Field(0.0, ge=0)
    """prompt tokens that were not cached"""
    cached: float = Field(0.0, ge=0)
    """prompt tokens the provider had cached"""
    written: float | None = Field(None, ge=0)
    """prompt tokens that the provider wrote to its cache; null: as input"""
    output: float = Field(0.0, ge=0)
    """tokens of the reply"""

    def cost_usd(self, input_tokens: int, cached_tokens: int, output_tokens: int, written_tokens: int = 0) -> float:
        """Returns US dollars; cached and written tokens are part of the input tokens."""
        fresh = input_tokens - cached_tokens - written_tokens
        written = self.input if self.written is None else self.written
        spent = (
            fresh * self.input + cached_tokens * self.cached + written_tokens * written + output_tokens * self.output
        )
        return spent / 1e6


PRICES = {name: Price(**prices) for name, prices in read_yaml(Path(__file__).with_name("hosted.yaml")).items()}


_REFUSED = {  # keys of a request's body that another setting writes, or that make an answer of another form or price
    *("model", "temperature", "top_p", "max_tokens", "max_completion_tokens", "reasoning_effort", "seed", "messages"),
    *("n", "best_of", "stream", "tools", "functions", "web_search_options", "plugins", "models", "service_tier"),
    *("prediction", "modalities", "audio", "extra_body", "extra_headers", "extra_query", "api_key"),
}
_FIXED_HEADERS = {"accept-encoding", "content-type", "content-length", "host"}  # set by the client

LEAST_CONCURRENCY, MOST_CONCURRENCY = 64, 1000  # requests to an endpoint by default; openai opens no more


class OpenAIConfig(Section):
    """A partner behind an OpenAI-compatible endpoint. The API key comes from the environment, never from the config."""

    player: ClassVar[str] = "partner"  # in sentences
    model: str = "gpt-4.1-2025-04-14"
    """model name; a dated snapshot stays the same partner for the whole run; public pages date GPT-4.1's shutdown 14 January 2027
    (not verified), successors are in docs/how-to/partners.md"""
    base_url: Annotated[str | None, ASIDE] = None
    """endpoint, such as http://localhost:8100/v1 for a local model; null: OpenAI"""
    api_key_env: Annotated[str, ASIDE] = "OPENAI_API_KEY"
    """environment variable that holds the key; optional with a base_url"""
    headers: Annotated[dict[str, str], ASIDE] = Field({})
    """further headers of each request; {key} in a value stands for the API key, as in {api-key: "{key}"}"""
    query: Annotated[dict[str, str], ASIDE] = Field({})
    """parameters of each request's URL, such as {api-version: "2024-10-21"}"""
    prompt: Annotated[Path | None, Key(is_read=True)] = None
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
    extra: Annotated[dict[str, Any], ASIDE] = Field({})
    """further keys of the request body, such as chat_template_kwargs; none that has a setting or changes the price"""
    malformed_retries: int = Field(4, ge=0)
    """times that the model is asked again after a malformed reply, with the game's error"""

    concurrency: Annotated[int | None, PACE] = Field(
        None,
        ge=1,
        description="requests in flight per process; null: the dialogues of a step (train.games_per_step × train.group_size), "
        f"but at least {LEAST_CONCURRENCY} and at most {MOST_CONCURRENCY}",
    )
    requests_per_minute: Annotated[float | None, PACE] = Field(None, gt=0)
    """your account's rate limit; calls wait to stay below it; null: none"""
    tokens_per_minute: Annotated[float | None, PACE] = Field(None, gt=0)
    """rate limit of tokens, input and output together; null: none"""
    request_seconds: Annotated[float, PACE] = Field(60.0, gt=0)
    """wall time of one request"""
    turn_seconds: Annotated[float, PACE] = Field(300.0, gt=0)
    """wall time of one reply, including retries but not queueing"""
    max_retries: Annotated[int, PACE] = Field(8, ge=0)
    """retries of a failed request; a rate limit (429) does not count"""
    outage_wait_minutes: Annotated[float, PACE] = Field(15.0, ge=0)
    """the longest that calls wait for an endpoint that is down; then the run stops and can be resumed"""

    budget_usd: Annotated[float | None, PACE] = Field(None, gt=0)
    """budget of the whole run, over all its starts and processes; at this sum the run saves and stops; needs a price for the
    model (`prices`); at its start a run prints what it may cost"""
    prices: Annotated[dict[str, Price], ASIDE] = Field(PRICES)
    """prices by model name, with or without a snapshot's date; the built-in table is of November 2026 and not verified; your bill
    decides"""

    cassette: Annotated[Path | None, Key(is_read=True, decides=False)] = None
    """sqlite file that keeps every exchange"""
    cassette_mode: Annotated[Literal["auto", "replay"], ASIDE] = "auto"
    """auto: ask the endpoint only what the cassette does not hold; replay: ask nothing"""

    @property
    def price(self) -> Price | None:
        """Price of the model, or of the model that it is a dated snapshot of; None if neither has one."""
        dated = r"(-[0-9]{4}[0-9-]*)?"
        fits = [name for name in self.prices if re.fullmatch(re.escape(name) + dated, self.model)]
        return self.prices[max(fits, key=len)] if fits else None

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str | None) -> str | None:
        with contextlib.suppress(ValueError):  # a port or a host that is none
            parts = urlsplit(url or "https://api.openai.com")
            _ = parts.port, (parts.hostname or "").encode("idna")
            if parts.scheme in ("http", "https") and parts.hostname and not parts.query and "@" not in parts.netloc:
                return url
        raise ValueError(
            "must be like http://localhost:8000/v1: http or https, a host, no query (set query), no password (set headers, with {key})"
        )

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
        if wrong := sorted(extra.keys() & _REFUSED):
            raise ValueError(
                f"{', '.join(wrong)} cannot be sent: it has a setting, or changes the form or price of an answer; remove it"
            )
        return extra


class ChatPolicyConfig(OpenAIConfig):
    """A chat model behind an OpenAI-compatible endpoint as the policy (`slim-rl evaluate --policy openai:MODEL`). It plays by
    text only. The other keys are those of `partner.openai`.
    """

    player: ClassVar[str] = "policy"
    model: str = ""
    """set by --policy openai:MODEL"""
    prompt: Path | None = None
    """file with instructions that follow the game's rules; null: none"""
    temperature: float | None = Field(1.0, ge=0)
    """as policy.temperature; null: not sent"""
    max_tokens: int | None = Field(512, ge=1)
    """tokens of one turn, as limits.turn_tokens; a turn that is cut ends its game; null: not sent"""
