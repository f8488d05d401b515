"""A chat model as the partner, over any OpenAI-compatible endpoint. What it is sent follows from the view alone:

    system     the game's rules, then the partner's own (shy_prompt.md)
    user       what its seat was dealt, and the other seat's words
    assistant  its own words; a refused action is followed by the error, as a user message

so each request of a game begins with all of the one before it (which is what a provider's prompt cache needs), and the partner
keeps nothing between calls. Under a proposal stands what it is worth to the partner (`judging`), if `reckon`: a model cannot solve an
assignment problem in one breath, and a partner that accepts at random would teach the policy nothing. A reply must be one valid action of the kind the situation asks for: [accept] or [reject] where a
proposal waits, else [message]; the shy partner does not propose. Form is not mended here: a reply without its tag is asked again.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import replace
from importlib import resources
from typing import Any

from slim_rl.config import OpenAIConfig, PartnerConfig
from slim_rl.dialogue.partner import PartnerFailure, Reply, Usage
from slim_rl.dialogue.record import StopReason
from slim_rl.environment import View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.actions import ActionError, parse_action
from slim_rl.games.matching.env import MatchingView
from slim_rl.games.matching.partners.judging import judge
from slim_rl.games.matching.prompt import RESPOND
from slim_rl.partners.endpoint import Completion, Endpoint
from slim_rl.partners.spend import add

Messages = list[dict[str, str]]

_VERSION = re.compile(r"\A<!-- version: (.+?) -->\s*")
_PROPOSAL = re.compile(r"\s*\[\s*propose\s*\]", re.IGNORECASE)


class OpenAIPartner:
    """See the module's docstring.

    Args:
        config: the partner's section of the configuration.
        endpoint: what to ask; by default one of its own.

    Raises:
        ConfigError: no key, no readable prompt, no cassette to replay, or a budget for a model without a price.
    """

    def __init__(self, config: PartnerConfig, endpoint: Endpoint | None = None) -> None:
        self.config = config.openai
        self.endpoint = endpoint or Endpoint(config.openai)
        self.accept_fraction = config.accept_fraction
        self.prompt, version = _read_prompt(config)
        self._identity = {
            "kind": "openai",
            "base_url": self.endpoint.url,
            "model": self.config.model,
            "request": self.endpoint.parameters() | {"seed": "dialogue" if self.config.send_seed else None},
            "prompt_version": version,
            "prompt_sha256": hashlib.sha256(self.prompt.encode()).hexdigest(),
            "accept_fraction": config.accept_fraction,
            "reckon": self.config.reckon,
            "malformed_retries": self.config.malformed_retries,
        }

    @classmethod
    def from_config(cls, config: PartnerConfig, make_env: Any = None) -> OpenAIPartner:
        """The partner of `config`. Those of one process that are configured alike share an endpoint: its limits, budget,
        breaker and cassette.
        """
        return cls(config, _shared_endpoint(config.openai.model_dump_json()))

    @property
    def identity(self) -> dict[str, Any]:
        """Model as asked for, effective request parameters, and the prompt's version and hash; no secrets. The snapshot that
        answered is in each reply's usage.
        """
        return dict(self._identity)

    @property
    def usage(self) -> Usage:
        """The sum over all calls of the endpoint so far."""
        return self.endpoint.spend.total

    @property
    def stopped(self) -> str | None:
        """One sentence on why no new game should be started (endpoint down for good, budget spent), or None."""
        return self.endpoint.stopped

    def messages(self, view: View) -> Messages:
        """The request's messages. Words that follow each other from one side become one message."""
        messages = [
            {"role": "system", "content": f"{view.rules}\n\n{self.prompt}"},
            {"role": "user", "content": view.state},
        ]
        for utterance in view.history:
            if utterance.seat != view.seat:
                _say(messages, "user", utterance.text + self._note(utterance.text, view.private))
                continue
            _say(messages, "assistant", utterance.text)
            if utterance.error is not None:
                _say(messages, "user", f"Error: {utterance.error}")
        return messages

    def _note(self, text: str, game: Any) -> str:
        """What is written under a proposal; nothing under anything else."""
        if not isinstance(game, MatchingView) or not _PROPOSAL.match(text):
            return ""
        action = parse_action(text, game.roster)
        if not self.config.reckon or isinstance(action, ActionError) or action.assignment is None:
            return f"\n{RESPOND}"
        verdict = judge(game, action.assignment, self.accept_fraction)
        share = f"{100 * verdict.value / verdict.best:.0f}%" if verdict.best else "100%"
        doubts = ", ".join(f"{game.roster.reviewers[r]} on {game.roster.short_papers[p]}" for r, p in verdict.doubts)
        return (
            f"\n{RESPOND}\n(Note, for you alone: to you this plan is worth {share} of your best plan, so you "
            f"{'accept' if verdict.accepts else 'reject'} it.{f' You doubt {doubts}.' if doubts else ''})"
        )

    async def reply(self, view: View) -> Reply:
        """The next action of `view.seat`, checked. A malformed one is asked again with the error, `malformed_retries` times.

        Raises:
            PartnerFailure: no answer (PARTNER_FAILED), none that is well-formed (PARTNER_ERRORS), or no money (BUDGET).
        """
        messages = self.messages(view)
        opening = all(utterance.seat != view.seat for utterance in view.history)
        usage = Usage()
        for malformed in range(self.config.malformed_retries + 1):
            completion = await self.endpoint.ask(messages, view.seed % 2**31, opening and malformed == 0)
            usage = add(usage, completion.usage)
            error = self._error(completion, view)
            if error is None:
                return Reply(completion.text.strip(), replace(usage, malformed=malformed))
            if completion.text.strip():
                _say(messages, "assistant", completion.text)
            _say(messages, "user", f"Error: {error}")
        tries = self.config.malformed_retries + 1
        raise PartnerFailure(
            f"{self.config.model} made {tries} malformed replies in a row; the last error: {error}",
            StopReason.PARTNER_ERRORS,
        )

    def _error(self, completion: Completion, view: View) -> str | None:
        """What is wrong with a reply, as a sentence for the model; None for a valid action of the right kind."""
        if completion.finish_reason == "length":
            return "Your reply was cut off because it was too long. Reply with one short action."
        if not completion.text.strip():
            return "Your reply was empty. Reply with one action."
        game = view.private
        if not isinstance(game, MatchingView):  # a game of another kind judges its actions itself
            return None
        action = parse_action(completion.text, game.roster, must_respond=game.pending is not None)
        if isinstance(action, ActionError):
            return action.message
        if action.kind == "propose":
            return "You do not make proposals. Reply with [message]."
        return None


def _say(messages: Messages, role: str, content: str) -> None:
    last = messages[-1]
    if last["role"] == role:
        messages[-1] = {"role": role, "content": f"{last['content']}\n\n{content}"}
    else:
        messages.append({"role": role, "content": content})


def _read_prompt(config: PartnerConfig) -> tuple[str, str]:
    """The partner's rules, filled in, and their version."""
    path = config.openai.prompt
    try:
        text = (path or resources.files("slim_rl.partners") / "shy_prompt.md").read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"Cannot read the partner's prompt {path}: {error.strerror}; mend partner.openai.prompt."
        ) from error
    version = _VERSION.match(text)
    body = text[version.end() :] if version else text
    return body.replace("{accept_percent}", f"{100 * config.accept_fraction:g}").strip(), version[1] if version else ""


@functools.cache
def _shared_endpoint(config: str) -> Endpoint:
    return Endpoint(OpenAIConfig.model_validate_json(config))
