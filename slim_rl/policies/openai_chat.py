"""A chat model behind an OpenAI-compatible endpoint as the policy, by text alone: for evaluation, never for training.

    what it is sent in a dialogue only grows at its end, and holds the same words that a trained policy reads as tokens:
    system     the game's rules
    user       what its seat was dealt; later, what the game says to the seat, without control tokens (`partners.quoting`)
    assistant  its own words, as it said them

A reply goes to the game as it is: what is malformed the game refuses, and says why, as it does with any policy. A turn cut at
`max_tokens` is a turn that was cut at a limit. The key, the retries, the budget and the cassette are those of the partners'
endpoint (`partners.endpoint`), set under `policy.openai`.
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
    """The model, a text player that all dialogues of a process share.

    Raises:
        ConfigError: no key, no readable prompt, no cassette to replay, or a budget for a model without a price.
    """

    def __init__(self, config: ChatPolicyConfig) -> None:
        self.config = config
        try:
            self.endpoint = Endpoint(config)
            self.instructions = read_prompt(config, None)[0]
        except ConfigError as error:
            raise ConfigError(_own(str(error))) from error

    @property
    def identity(self) -> dict[str, Any]:
        prompt = hashlib.sha256(self.instructions.encode()).hexdigest() if self.instructions else None
        return {"engine": "openai", **self.endpoint.identity, "prompt_sha256": prompt}

    @property
    def stopped(self) -> str | None:
        """One sentence on why no new game should be started (endpoint down for good, budget spent), or None."""
        stopped = self.endpoint.stopped
        return _own(stopped) if stopped else None

    def keep_spend(self, folder: Path) -> None:
        """Keeps what this model spends in `folder`/policy/MODEL from now on, apart from what a partner spends: each has its own budget."""
        self.endpoint.spend.keep(folder / "policy" / self.config.model.replace("/", "-"))

    def messages(self, view: View) -> Messages:
        """The request's messages."""
        rules = f"{view.rules}\n\n{self.instructions}" if self.instructions else view.rules
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": view.state}]
        for utterance in view.history:
            told = utterance.observation
            if utterance.seat == view.seat:
                say(messages, "assistant", utterance.text)
                told = told or (f"Error: {utterance.error}" if utterance.error is not None else "")
            else:
                told = told or utterance.text
            if told:
                say(messages, "user", sanitized(told))
        return [{**message, "content": whole_characters(message["content"])} for message in messages]

    async def act(self, view: View) -> Turn:
        """See `dialogue.partner.Partner`. Raises PartnerFailure when the endpoint gives no answer, or its budget is spent."""
        try:
            completion = await self.endpoint.ask(self.messages(view), view.seed % 2**31)
        except PartnerFailure as failure:
            raise PartnerFailure(_own(str(failure)), failure.reason, failure.usage, failure.thought) from None
        text, thought = split_thought(completion.text)
        refused = completion.refusal and f"(It refused: {completion.refusal})"
        thought = "\n\n".join(filter(None, (completion.thought, refused, thought))) or None
        cut = StopReason.TURN_TOKENS if completion.finish_reason == "length" else None
        return Turn(text, usage=completion.usage, thought=thought, cut=cut)


def _own(sentence: str) -> str:
    """What the endpoint says of the partner, for which it was made, said of the policy."""
    return sentence.replace("partner.openai", "policy.openai").replace("he partner's", "he policy's")
