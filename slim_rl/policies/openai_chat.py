"""Chat model behind an OpenAI-compatible endpoint as the policy, by text alone: for evaluation, never for training.

Its messages only grow at the end, and hold the same text that a trained policy reads as tokens:

    system     the game's rules
    user       its seat's initial state; later, the game's observations, without control tokens (`partners.quoting`)
    assistant  its replies, unchanged

A reply goes to the game unchanged: the game rejects a malformed one with the reason, as with any policy. A reply cut at `max_tokens` is a
turn cut at a limit. Key, retries, budget and cassette are those of the partners' endpoint (`partners.endpoint`), set under `policy.openai`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from slim_rl.config import ChatPolicyConfig
from slim_rl.dialogue.chat import split_thought
from slim_rl.dialogue.partner import PartnerFailure
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.environment import View
from slim_rl.errors import ConfigError
from slim_rl.jsonl import whole_characters
from slim_rl.partners.endpoint import Endpoint
from slim_rl.partners.openai_chat import Messages, read_prompt, say
from slim_rl.partners.quoting import sanitized


class ChatPolicy:
    """Chat model as a text player that all dialogues of a process share.

    Raises:
        ConfigError: the key, the prompt or the cassette is missing, or a model with a budget has no price.
    """

    def __init__(self, config: ChatPolicyConfig) -> None:
        self.config = config
        try:
            self.endpoint = Endpoint(config)
            self.instructions = read_prompt(config, None)[0]
        except ConfigError as error:
            raise ConfigError(_for_policy(str(error))) from error

    @property
    def identity(self) -> dict[str, Any]:
        prompt = hashlib.sha256(self.instructions.encode()).hexdigest() if self.instructions else None
        return {"engine": "openai", **self.endpoint.identity, "prompt_sha256": prompt}

    @property
    def stopped(self) -> str | None:
        """Sentence that says why no new game should start (endpoint down for good, budget spent), or None."""
        stopped = self.endpoint.stopped
        return _for_policy(stopped) if stopped else None

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
        """See `dialogue.partner.Partner`. Raises PartnerFailure if the endpoint does not answer or its budget is spent."""
        try:
            completion = await self.endpoint.ask(self.messages(view), view.seed % 2**31)
        except PartnerFailure as failure:
            raise PartnerFailure(_for_policy(str(failure)), failure.reason, failure.usage, failure.thought) from None
        text, thought = split_thought(completion.text)
        refused = completion.refusal and f"(It refused: {completion.refusal})"
        thought = "\n\n".join(filter(None, (completion.thought, refused, thought))) or None
        cut = StopReason.TURN_TOKENS if completion.finish_reason == "length" else None
        return Turn(text, usage=completion.usage, thought=thought, cut=cut)


def _for_policy(sentence: str) -> str:
    """Returns the endpoint's message with the policy in place of the partner."""
    return sentence.replace("partner.openai", "policy.openai").replace("he partner's", "he policy's")
