"""One OpenAI-compatible endpoint as every dialogue of the process shares it: what it is asked, and what it answered, now or before.

    an answer that the cassette holds is not asked for again, and what is recorded is there before it is used
    every request gets a `Completion` or a `PartnerFailure`

How a call is made, again where it fails, is in `calls`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from slim_rl.config import OpenAIConfig
from slim_rl.dialogue.deadline import not_counted
from slim_rl.dialogue.partner import PartnerFailure, Usage
from slim_rl.errors import ConfigError, DataError
from slim_rl.partners.answers import cut
from slim_rl.partners.calls import Calls
from slim_rl.partners.cassette import Cassette, request_key


@dataclass(frozen=True, slots=True)
class Completion:
    """An answered request.

    Attributes:
        text: the first choice's content; "" if it has none.
        finish_reason: as the API says: stop, length, content_filter, ...
        usage: what it took, failed tries included; all zero when it came from a cassette.
    """

    text: str
    finish_reason: str
    usage: Usage


class Endpoint:
    """See the module's docstring. Raises ConfigError when built with settings that cannot work (no key, no price, no cassette)."""

    def __init__(self, config: OpenAIConfig) -> None:
        self.config, self.replays = config, config.cassette_mode == "replay"
        self.calls = Calls(config, made=not self.replays)
        self.cassette = Cassette(config.cassette, config.cassette_mode) if config.cassette else None
        # by loop and request, while somebody waits for its answer
        self._asking: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()
        if self.replays and self.cassette is None:
            raise ConfigError("partner.openai.cassette_mode is replay, but partner.openai.cassette names no file.")

    @property
    def stopped(self) -> str | None:
        """Why no new game should be started: no call is made any more, or the cassette's disk is full. None: it may."""
        return self.calls.stopped or (self.cassette.trouble if self.cassette is not None else None)

    @property
    def identity(self) -> dict[str, Any]:
        """Endpoint, model, and the effective request parameters; those of the config that the model refuses are named."""
        asked = self.parameters() | {"seed": "dialogue" if self.config.send_seed else None}
        request = {"seed": None} | self.calls.dialect.fit(asked)
        refused = {"refused": sorted(self.calls.dialect.refused)} if self.calls.dialect.refused else {}
        return {"base_url": self.calls.url, "model": self.config.model, "request": request, **refused}

    def body(self, messages: list[dict[str, str]], seed: int) -> dict[str, Any]:
        """The request as the config asks for it, which is its form in the cassette."""
        asked = {**self.parameters(), "messages": messages}
        if self.config.send_seed:
            asked["seed"] = seed
        return asked

    def parameters(self) -> dict[str, Any]:
        """The config's request parameters, without the messages and the seed."""
        names = ("temperature", "top_p", "max_tokens", "reasoning_effort")
        chosen = {name: getattr(self.config, name) for name in names if getattr(self.config, name) is not None}
        return {"model": self.config.model, **chosen, **self.config.extra}

    async def ask(self, messages: list[dict[str, str]], seed: int, opening: bool = False) -> Completion:
        """The model's answer to `messages`.

        Args:
            seed: sent with the request, and part of its address in the cassette.
            opening: the first call of a game, which the budget's reserve is not for.

        Raises:
            PartnerFailure: no answer after all retries; the message says why.
        """
        config, body = self.config, self.body(messages, seed)
        if self.cassette is None:
            answer, usage = await self.calls.answer(body, opening)
            return Completion(answer["text"], answer["finish_reason"], usage)
        try:
            with not_counted():  # another's wait for the endpoint is as little this dialogue's own
                kept, usage = await self._recorded(self.cassette, body, seed, opening)
        except DataError as error:
            self.calls.say_once(str(error))
            raise PartnerFailure(str(error)) from None
        return Completion(**cut(kept["text"], kept.get("finish_reason") or "stop", config), usage=usage)

    async def _recorded(
        self, cassette: Cassette, body: dict[str, Any], seed: int, opening: bool
    ) -> tuple[dict[str, Any], Usage]:
        """The answer as the cassette has it, asked for where it has none. Equal requests at once are asked once: the first is waited for."""
        key = request_key(body, seed)
        async with self._asking.setdefault((asyncio.get_running_loop(), key), asyncio.Lock()):
            cassette.flush()
            if (kept := cassette.get(key)) is not None:
                self.calls.dialect.recall(kept.get("refused", ()))
                return kept, Usage(model=kept.get("model"))
            if self.replays:
                raise PartnerFailure(
                    f"The cassette {cassette.path} has no answer to request {key}; record it with cassette_mode=auto."
                )
            answer, usage = await self.calls.answer(body, opening)
            return cassette.keep(key, body, seed, answer), usage
