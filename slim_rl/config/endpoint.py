"""An OpenAI-compatible endpoint's sections of a config: a partner behind it, or a chat model in the policy's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from slim_rl.config import hosted
from slim_rl.config.section import Section


class Price(Section):
    """What a model costs, in US dollars per million tokens."""

    input: float = Field(0.0, ge=0)
    """prompt tokens that were not cached"""
    cached: float = Field(0.0, ge=0)
    """prompt tokens the provider had cached"""
    output: float = Field(0.0, ge=0)
    """tokens of the reply"""


_PRICES = {
    name: Price(input=fresh, cached=cached, output=output) for name, (fresh, cached, output) in hosted.PRICES.items()
}


LEAST_CONCURRENCY, MOST_CONCURRENCY = 64, 1024  # of requests to an endpoint, where the config names no number


class OpenAIConfig(Section):
    """A partner behind an OpenAI-compatible endpoint. The key comes from the environment, never from here."""

    model: str = Field(
        "gpt-4.1-2025-04-14",
        description="a dated snapshot stays the same partner for the whole run; public pages date GPT-4.1's shutdown "
        f"{hosted.SHUTDOWNS['gpt-4.1']} (not verified), successors are in docs/partners.md",
    )
    base_url: str | None = None
    """such as http://localhost:8100/v1 for a model of your own; null: OpenAI"""
    api_key_env: str = "OPENAI_API_KEY"
    """environment variable that holds the key; optional with a base_url"""
    prompt: Path | None = None
    """file with the partner's rules; null: the game's own"""

    temperature: float | None = Field(0.0, ge=0)
    """null: not sent; where the model refuses it, it is left out and the log says so"""
    top_p: float | None = Field(None, gt=0, le=1)
    """null: not sent; where refused, as temperature"""
    max_tokens: int | None = Field(300, ge=1)
    """tokens of one reply, thoughts included; sent as max_completion_tokens where the model wants that; null: not
    sent"""
    reasoning_effort: str | None = None
    """how long a reasoning model thinks: minimal, low, medium, high; null: not sent"""
    send_seed: bool = True
    """send a seed drawn from the dialogue's, for endpoints that know it"""
    extra: dict[str, Any] = Field({})
    """further keys of the request body, such as chat_template_kwargs"""
    note_plan_worth: bool = True
    """a note under each proposal says what it is worth to the partner, which need not add up then"""
    malformed_retries: int = Field(2, ge=0)
    """times a malformed reply is asked again, with the game's error"""

    reply_chars: int = Field(8000, ge=1)
    """a longer reply counts as cut off, and is asked again"""
    response_bytes: int = Field(2_000_000, ge=1000)
    """of one response; a longer one is not read to its end, and is a fault"""

    concurrency: int | None = Field(
        None,
        ge=1,
        description="requests in flight, of all dialogues of a process together; null: as many as a step has dialogues "
        f"(train.games_per_step × train.group_size), but at least {LEAST_CONCURRENCY} and at most {MOST_CONCURRENCY}",
    )
    requests_per_minute: float | None = Field(None, gt=0)
    """your account's limit, kept by waiting; null: none"""
    tokens_per_minute: float | None = Field(None, gt=0)
    """the same for tokens, input and output together"""
    request_seconds: float = Field(60.0, gt=0)
    """wall time of one request"""
    turn_seconds: float = Field(300.0, gt=0)
    """wall time of one reply, retries included, queueing not"""
    max_retries: int = Field(8, ge=0)
    """times a failed request is made again; a rate limit (429) is no failure"""
    backoff_seconds: float = Field(0.5, gt=0)
    """first wait before a retry; doubles, with full jitter"""
    max_backoff_seconds: float = Field(20.0, gt=0)
    """the longest of these waits"""

    outage_failures: int = Field(8, ge=1)
    """failures in a row, over all games, that mean the endpoint is down, if nothing was answered for outage_seconds"""
    outage_seconds: float = Field(5.0, ge=0)
    """see outage_failures"""
    outage_probe_seconds: float = Field(10.0, gt=0)
    """wait between probes of an endpoint that is down"""
    outage_wait_minutes: float = Field(15.0, ge=0)
    """the longest that calls wait for it; then the run stops, to be resumed"""

    budget_usd: float | None = Field(None, gt=0)
    """of the whole run, over all its starts and processes; calls stop here, after a save; needs a price for the
    model (`prices`); the start says what a run may cost"""
    budget_reserve: float = Field(0.05, ge=0, lt=1)
    """share of the budget kept to finish games that have begun"""
    prices: dict[str, Price] = Field(
        _PRICES,
        description="by the model's name, which a snapshot's date may follow; the built-in table is of "
        f"{hosted.AS_OF} and not verified, and your bill decides",
    )

    cassette: Path | None = None
    """sqlite file that keeps every exchange"""
    cassette_mode: Literal["auto", "record", "replay"] = "auto"
    """auto: ask the endpoint only what the cassette does not hold; record: ask everything again; replay: ask nothing"""


class ChatPolicyConfig(OpenAIConfig):
    """A chat model behind an OpenAI-compatible endpoint in the policy's place (`slim-rl evaluate --policy openai:MODEL`). It plays by
    text alone. The other keys are those of `partner.openai`.
    """

    model: str = ""
    """--policy openai:MODEL names it"""
    prompt: Path | None = None
    """file with instructions, put after the game's rules; null: none"""
    temperature: float | None = Field(1.0, ge=0)
    """as policy.temperature; null: not sent"""
    max_tokens: int | None = Field(512, ge=1)
    """tokens of one turn, as limits.turn_tokens; a turn that is cut ends its game; null: not sent"""
