"""Chat model over any OpenAI-compatible endpoint: as the partner in any game for two, or as the policy (`ChatPolicy`).

A partner's messages follow from the view alone:

    system     the game's rules, the partner's rules, and how to recognise the other player's text (`quoting`)
    user       its seat's initial state, and the other seat's text, quoted; what the game adds to it is below, unquoted
    assistant  its replies; a rejected one is followed by the error, as a user message

Each request of a game begins with the whole previous one (a provider's prompt cache needs that), and the partner keeps nothing between
calls. A malformed reply is asked again. A game with notes, or with a form of its actions to check, has a subclass.
"""

import hashlib
import re
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Self

from slim_rl.config import ChatPolicyConfig, OpenAIConfig, PartnerConfig
from slim_rl.dialogue.chat import split_thought
from slim_rl.dialogue.players import Partner, PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn, Usage
from slim_rl.environment import View
from slim_rl.errors import ConfigError
from slim_rl.jsonl import whole_characters
from slim_rl.partners.endpoint import Completion, Endpoint
from slim_rl.partners.quoting import QUOTED, one_line, quoted, sanitized, spoken

Messages = list[dict[str, str]]

LAYOUT = 2  # version of the messages' form
_SHARED: dict[str, Endpoint] = {}  # by their configuration
_VERSION = re.compile(r"\A<!-- version: (.+?) -->\s*")


class _OverEndpoint(Partner):
    """Player behind an endpoint."""

    endpoint: Endpoint

    @property
    def stopped(self) -> str | None:
        """Sentence that says why no new game should start (endpoint down for good, budget spent), or None."""
        return self.endpoint.stopped


class OpenAIPartner(_OverEndpoint):
    """See the module's docstring. Raises ConfigError if its endpoint or its prompt cannot be used.

    Args:
        endpoint: endpoint of the model; None: a new one.
    """

    costs_money = limits_itself = True

    def __init__(self, config: OpenAIConfig, endpoint: Endpoint | None = None) -> None:
        self.config = config
        self.endpoint = endpoint or Endpoint(config)
        text, version = read_prompt(config, self.default_prompt())
        for name, value in self.placeholders().items():
            text = text.replace(f"{{{name}}}", value)
        self.prompt = text
        self._identity = {
            "prompt_version": version,
            "prompt_sha256": hashlib.sha256(self.prompt.encode("utf-8", "surrogatepass")).hexdigest(),
            "layout": LAYOUT,
            "malformed_retries": self.config.malformed_retries,
        }

    @classmethod
    def from_config(cls, config: PartnerConfig) -> Self:
        """See `Partner`. Partners of a process that differ in their prompts alone share an endpoint, its limits and its spending."""
        key = config.openai.model_dump_json(exclude={"prompt", "malformed_retries"})
        if key not in _SHARED or _SHARED[key].breaker.stopped:  # a new one after an outage that ended a run
            _SHARED[key] = Endpoint(config.openai)
        return cls(config.openai, _SHARED[key], **config.args)

    # --- what a game may override

    @classmethod
    def default_prompt(cls) -> Traversable:
        """Returns the file with the partner's rules, if the config names none."""
        return resources.files("slim_rl.partners") / "chat_prompt.md"

    def placeholders(self) -> dict[str, str]:
        """Returns what stands for ``{name}`` in the partner's rules."""
        return {}

    def received_text(self, view: View, index: int) -> str:
        """Returns the text that the partner reads of utterance `index`, one of the other seat's."""
        return view.history[index].text

    def note(self, view: View, index: int) -> str:
        """Returns what the game adds below utterance `index`, for the partner alone. Later turns must not change it."""
        return ""

    def action_in(self, text: str, view: View) -> str:
        """Returns the one action within a reply that has more text, such as thoughts."""
        return text

    def complaint(self, text: str, view: View) -> str | None:
        """Returns why a reply is not a valid action, as a sentence for the model; None if it is valid."""
        return None

    # --- the partner

    @property
    def identity(self) -> dict[str, Any]:
        """Requested model, effective request parameters, and the prompt's version and hash; no secrets."""
        return {"kind": "openai", **self.endpoint.identity, **self._identity}

    def keep_spend(self, folder: Path) -> None:
        """Writes spending to the run's `folder`, and counts what is there against the budget."""
        self.endpoint.spend.keep(folder)

    def messages(self, view: View) -> Messages:
        """Returns the request's messages."""
        messages = [
            {"role": "system", "content": whole_characters(f"{view.rules}\n\n{self.prompt}\n\n{QUOTED}")},
            {"role": "user", "content": whole_characters(view.state)},
        ]
        for index, utterance in enumerate(view.history):
            if utterance.seat != view.seat:
                text, note = quoted(self.received_text(view, index)), self.note(view, index)
                say(messages, "user", f"{text}\n{note}" if note else text)
                continue
            say(messages, "assistant", sanitized(utterance.text))
            if utterance.error is not None:
                say(messages, "user", _error_message(utterance.error))
        return messages

    async def act(self, view: View) -> Turn:
        """Returns the next action of `view.seat`, checked. A malformed reply is asked again with the error.

        Raises:
            PartnerFailure: no answer (PARTNER_FAILED), no valid one (PARTNER_ERRORS), budget spent (BUDGET), endpoint down (OUTAGE).
        """
        messages = self.messages(view)
        usage = Usage()
        errors: list[str] = []
        thoughts: list[str | None] = []
        while len(errors) <= self.config.malformed_retries:
            try:
                completion = await self.endpoint.ask(messages, view.seed % 2**31)
            except PartnerFailure as failure:
                failure.usage = replace(usage + (failure.usage or Usage()), malformed=len(errors))
                failure.thought = _joined(thoughts)
                raise
            usage += completion.usage
            text, thought = split_thought(completion.text)  # the other player does not see the thought
            text = spoken(text).strip()
            action = self.action_in(text, view)
            aside = len(action) < len(text)
            thoughts += [completion.thought, completion.refusal and f"(It refused: {completion.refusal})", thought]
            error = self._error(completion, action, view)
            if error is None:
                thoughts += [text.replace(action, "", 1).strip()] if aside else []
                usage = replace(usage, malformed=len(errors), asides=int(aside))
                return Turn(action, usage=usage, thought=_joined(thoughts))
            errors.append(error)
            if action:
                say(messages, "assistant", sanitized(action))
            say(messages, "user", _error_message(error))
        raise PartnerFailure(
            f"{self.config.model} made {len(errors)} malformed replies in a row; the last error: {errors[-1]}",
            StopReason.PARTNER_ERRORS,
            replace(usage, malformed=len(errors) - 1),
            _joined(thoughts),
        )

    def _error(self, completion: Completion, action: str, view: View) -> str | None:
        """Returns what is wrong with a reply, as a sentence for the model; None for a valid action."""
        if completion.finish_reason == "length":
            if action:
                return "Your reply was cut off because it was too long. Reply with one short action."
            left_none = f"Your reply was all thought, and max_tokens={self.config.max_tokens} left none for an action."
            return f"{left_none} Think less, and reply with one short action."
        if completion.finish_reason == "content_filter":
            return "Your reply was cut off by a content filter. Reply with one short action."
        if completion.refusal and not action:
            return f"You refused to answer: {one_line(completion.refusal)}. Reply with one action."
        if completion.finish_reason == "tool_calls":
            return "Your reply was a call of a tool, and there is none. Reply with one action."
        if not action:
            thought = "only a thought" if completion.thought else "empty"
            return f"Your reply was {thought}. Reply with one action."
        return self.complaint(action, view)


def _joined(thoughts: list[str | None]) -> str | None:
    return "\n\n".join(filter(None, thoughts)) or None


def _error_message(error: str) -> str:
    return f"Error: {one_line(error, 2000)}"


def say(messages: Messages, role: str, content: str) -> None:
    """Adds a message to a chat, or text to the last message if it has the same role."""
    if messages[-1]["role"] == role:
        content = f"{messages.pop()['content']}\n\n{content}"
    messages.append({"role": role, "content": content})


def read_prompt(config: OpenAIConfig, default: Traversable | None) -> tuple[str, str]:
    """Returns the text and version of the config's prompt file, or of `default` (None: no text)."""
    file = config.prompt or default
    if file is None:
        return "", ""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(
            f"Cannot read the {config.player}'s prompt {config.prompt}: {why}. Correct {config.player}.openai.prompt."
        ) from error
    version = _VERSION.match(text)
    return (text[version.end() :] if version else text).strip(), version[1] if version else ""


class ChatPolicy(_OverEndpoint):
    """Chat model as the policy, by text alone: for evaluation, never for training. All dialogues of a process share it.

    Its messages only grow at the end, and hold the text that a trained policy reads as tokens: the game's rules (system), its seat's initial
    state and the game's observations without control tokens (user), its replies unchanged (assistant). A reply goes to the game unchanged,
    which rejects a malformed one with the reason, as with any policy. One cut at `max_tokens` is a turn cut at a limit. Key, retries, budget and
    cassette are set under `policy.openai`.

    Raises:
        ConfigError: the key, the prompt or the cassette is missing, or a model with a budget has no price.
    """

    def __init__(self, config: ChatPolicyConfig) -> None:
        self.config, self.endpoint = config, Endpoint(config)
        self.instructions = read_prompt(config, None)[0]

    @property
    def identity(self) -> dict[str, Any]:
        prompt = hashlib.sha256(self.instructions.encode()).hexdigest() if self.instructions else None
        return {"engine": "openai", **self.endpoint.identity, "prompt_sha256": prompt}

    def keep_spend(self, folder: Path) -> None:
        """Writes spending to `folder`/policy/MODEL, separate from a partner's: each has its own budget."""
        self.endpoint.spend.keep(folder / "policy" / self.config.model.replace("/", "-"))

    def messages(self, view: View) -> Messages:
        """Returns the request's messages."""
        rules = f"{view.rules}\n\n{self.instructions}" if self.instructions else view.rules
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": view.state}]
        for utterance in view.history:
            observed = utterance.observation
            if utterance.seat == view.seat:
                say(messages, "assistant", utterance.text)
                observed = observed or (f"Error: {utterance.error}" if utterance.error is not None else "")
            else:
                observed = observed or utterance.text
            if observed:
                say(messages, "user", sanitized(observed))
        return [{**message, "content": whole_characters(message["content"])} for message in messages]

    async def act(self, view: View) -> Turn:
        """See `dialogue.players.Partner`. Raises PartnerFailure if the endpoint does not answer or its budget is spent."""
        completion = await self.endpoint.ask(self.messages(view), view.seed % 2**31)
        text, thought = split_thought(completion.text)
        refused = completion.refusal and f"(It refused: {completion.refusal})"
        thought = _joined([completion.thought, refused, thought])
        cut = StopReason.TURN_TOKENS if completion.finish_reason == "length" else None
        return Turn(text, usage=completion.usage, thought=thought, cut=cut)
