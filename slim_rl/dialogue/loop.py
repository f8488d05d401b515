"""Plays one game and keeps its tokens. The policy's input is always prompt_ids + response_ids so far, and grows only at its end:

    every engine call's input_ids is a prefix of the final prompt_ids + response_ids

An observation is written only when the policy is about to speak again, so a response ends with the policy's own tokens.
Framework-free and async: thousands of dialogues run side by side on one event loop.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

from slim_rl.config import Limits
from slim_rl.dialogue.agents import (
    Agent,
    AgentReply,
    DemonstratorAgent,
    PolicyAgent,
    TextAgent,
    TextPolicyAgent,
    TokenAgent,
)
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.partner import Partner, PartnerFailure
from slim_rl.dialogue.payment import price_sentence
from slim_rl.dialogue.policy import Policy
from slim_rl.dialogue.record import Dialogue, DialogueOver, StopReason, Turn
from slim_rl.environment import BaseEnvironment, Utterance, View, as_dict, reset_to, step_of

_END = {end.value: end for end in (StopReason.AGREED, StopReason.FINISHED, StopReason.REJECTED, StopReason.MAX_TURNS)}
_ROUNDING = 1e-6  # by which a sum of floats may pass the end of its range
_ERRORS = "errors"  # too many refused actions: whose they are makes the stop reason


@dataclass(frozen=True, slots=True)
class Demonstrator:
    """A scripted player for the policy's seat, whose words are written as tokens: to teach a model by."""

    player: Partner


@dataclass(frozen=True, slots=True)
class Speaker:
    """A player by text alone for the policy's seat: a person, or a chat model behind an API. Its dialogues have no tokens."""

    player: Partner


Player = Policy | Demonstrator | Speaker


async def play_dialogue(
    env: BaseEnvironment,
    policy: Player,
    partner: Partner | None,
    chat: Chat | None,
    limits: Limits,
    *,
    game_state: Any,
    id: str,
    game_id: str = "",
    seat: int = 0,
    seed: int = 0,
    price: float | None = None,
) -> Dialogue:
    """Plays `game_state` with the policy on `seat` and the partner on the other one.

    Args:
        policy: what is trained, or who takes its place.
        partner: None for a one-seat game.
        chat: the token boundaries; None for a `Speaker`.
        id: names the dialogue; also the policy's routing key.
        seed: goes into the players' views.
        price: of a question, which the policy is told with what it is dealt; None: it is told none.

    Returns:
        The dialogue. A failure of the partner or the engine is its stop reason, with reward None; it is never raised.
    """
    game = _Game(env, limits, game_state, seed, price)
    game.agents[seat] = _policy_agent(policy, chat, limits, game.opening(seat), id)
    if env.seats == 2:
        if partner is None:
            raise ValueError("a game for two needs a partner")
        game.agents[1 - seat] = TextAgent(partner)
    await game.play()
    return game.dialogue(seat, id, game_id, partner.identity if partner else {"kind": "none"})


async def play_selfplay(
    env: BaseEnvironment,
    policy: Player,
    chat: Chat | None,
    limits: Limits,
    *,
    game_state: Any,
    id: str,
    game_id: str = "",
    seed: int = 0,
    price: float | None = None,
) -> tuple[Dialogue, Dialogue]:
    """Plays `game_state` with the policy on both seats. Returns one dialogue a seat, each with its own view and tokens; ids and
    routing keys end in ``/0`` and ``/1``. Reward and stop reason are shared.
    """
    game = _Game(env, limits, game_state, seed, price)
    for seat in (0, 1):
        game.agents[seat] = _policy_agent(policy, chat, limits, game.opening(seat), f"{id}/{seat}")
    await game.play()
    first, second = (game.dialogue(seat, f"{id}/{seat}", game_id, {"kind": "self"}) for seat in (0, 1))
    return first, second


def _policy_agent(policy: Player, chat: Chat | None, limits: Limits, prompt: list[dict[str, str]], key: str) -> Agent:
    if isinstance(policy, Speaker):
        return TextPolicyAgent(policy.player, prompt)
    if chat is None:
        raise ValueError("a policy with tokens needs a chat template")
    if isinstance(policy, Demonstrator):
        return DemonstratorAgent(chat, limits, prompt, player=policy.player)
    return PolicyAgent(chat, limits, prompt, player=policy, key=key)


class _Game:
    """One game being played: the environment, the agents, and the record of what was said. Deals the game when it is made."""

    def __init__(self, env: BaseEnvironment, limits: Limits, game_state: Any, seed: int, price: float | None) -> None:
        self.env, self.limits, self.seed, self.price = env, limits, seed, price
        self.game_state = as_dict(game_state)
        self.agents: dict[int, Agent] = {}
        self._prompts: dict[int, list[dict[str, str]]] = {}  # of the policy's seats
        self.turns: list[Turn] = []
        self.stop_reason: StopReason | None = None
        self.failure: str | None = None
        self.reward: float | None = None
        self.seconds = 0.0
        self._history: dict[int, list[Utterance]] = {0: [], 1: []}
        reset_to(env, game_state)
        self._dealt = [(env.get_prompt_prefix(seat), env.get_state_description(seat)) for seat in range(env.seats)]

    def opening(self, seat: int) -> list[dict[str, str]]:
        """The opening messages of the policy on `seat`, who is told the price of a question, if there is one to tell."""
        prompt = self.env.prompt(seat)
        if self.price is not None:
            told = f"\n{price_sentence(self.price)}"
            rules, state = self._dealt[seat]
            self._dealt[seat] = rules, state + told
            *before, last = prompt
            prompt = [*before, {**last, "content": last["content"] + told}]
        self._prompts[seat] = prompt
        return prompt

    def view(self, seat: int) -> View:
        rules, state = self._dealt[seat]
        private = self.env.get_private_view(seat) if self.agents[seat].reads_private_view else None
        prompt = self._prompts.get(seat)
        price = self.price if prompt is not None else None
        return View(seat, rules, state, tuple(self._history[seat]), private, self.seed, price, tuple(prompt or ()))

    async def play(self) -> None:
        """Plays to the end."""
        started = time.monotonic()
        try:
            while self.stop_reason is None:
                await self._turn()
        except DialogueOver as over:
            self.stop_reason, self.failure = over.reason, over.failure
        assert self.stop_reason is not None
        if not self.stop_reason.is_failure:
            self._earn()
        self.seconds = time.monotonic() - started
        self.env.close()

    def _earn(self) -> None:
        """Takes the game's reward. With one that is no number, or outside the game's range, the dialogue has failed."""
        reward, (low, high) = float(self.env.get_normalized_reward()), self.env.reward_range
        if isfinite(reward) and low - _ROUNDING <= reward <= high + _ROUNDING:
            self.reward = reward
            return
        game, self.stop_reason = type(self.env).__name__, StopReason.BROKEN
        self.failure = (
            f"{game}.get_normalized_reward gave {reward}; it must be a finite number from {low:g} to {high:g}, or {game}.reward_range "
            "another range."
        )

    async def _turn(self) -> None:
        author = self.env.turn
        began = time.monotonic()
        agent = self.agents[author]
        most = self.limits.turn_seconds if agent.is_policy else None
        try:
            async with asyncio.timeout(most) as clock:
                said = await agent.act(self.view(author))
        except TimeoutError:
            if not clock.expired():  # a timeout, but not ours: a fault
                raise
            raise DialogueOver(StopReason.DEADLINE, f"a turn of the policy took longer than {most:g} s") from None
        except PartnerFailure as failure:
            if failure.usage is not None and failure.usage.input_tokens:  # what was paid for is in the record
                seconds, usage = time.monotonic() - began, asdict(failure.usage)
                self.turns.append(
                    Turn(author, "", "", None, failure.failure, failure.thought, seconds=seconds, usage=usage)
                )
            raise
        seconds = time.monotonic() - began
        if said.cut and not (said.cut is StopReason.TURN_TOKENS and self.limits.truncated_turn == "continue"):
            error = f"cut short ({said.cut.value})"
            self.turns.append(
                Turn(author, "", said.text, None, error, said.thought, said.span, seconds, said.usage, said.put)
            )
            raise DialogueOver(said.cut)
        self._step(author, said, seconds)

    def _step(self, author: int, said: AgentReply, seconds: float) -> None:
        """Gives the game what `author` said, and the seats what they may see of it."""
        observation, done, info = step_of(self.env, said.text)
        error = info.get("error")
        turn = Turn(
            author, "", said.text, info.get("action"), error, said.thought, said.span, seconds, said.usage, said.put
        )
        if self.env.turn == author and (error is None or self.env.seats == 1) and observation not in ("", error):
            turn.observation = observation  # the game answers: no turn of the other seat holds these words
        self.turns.append(turn)
        for seat, history in self._history.items():
            if error is None or seat == author:
                told = observation if seat == self.env.turn else ""
                history.append(Utterance(author, said.text, error, told))
        if done:
            self._end(info.get("end", StopReason.FINISHED.value), author)

    def _end(self, end: Any, author: int) -> None:
        """The game's own end. One that no game can have says nothing of how it was played: then the dialogue has failed."""
        if end == _ERRORS:
            own = self.agents[author].is_policy
            self.stop_reason = StopReason.POLICY_ERRORS if own else StopReason.PARTNER_ERRORS
        elif end in _END:
            self.stop_reason = _END[end]
        else:
            self.stop_reason = StopReason.BROKEN
            known = ", ".join((*_END, _ERRORS))
            self.failure = (
                f"{type(self.env).__name__}.step ended the game with end = {end!r}; it must be one of {known}."
            )

    def dialogue(self, seat: int, id: str, game_id: str, partner: dict[str, Any]) -> Dialogue:
        """The record as `seat` lived it."""
        own = self.agents[seat]
        turns = [
            replace(
                turn, role="policy" if turn.seat == seat else "partner", span=turn.span if turn.seat == seat else None
            )
            for turn in self.turns
        ]
        dialogue = Dialogue(
            id=id,
            game_id=game_id,
            seat=seat,
            seed=self.seed,
            game_state=self.game_state,
            policy=own.identity,
            partner=partner,
            environment=f"{type(self.env).__module__}.{type(self.env).__qualname__}",
            prompt=own.prompt,
            turns=turns,
            reward=self.reward,
            stop_reason=self.stop_reason,
            failure=self.failure,
            seconds=self.seconds,
            price=self.price,
        )
        if isinstance(own, TokenAgent):
            dialogue.prompt_ids, dialogue.response_ids = own.ids[: own.prompt_length], own.ids[own.prompt_length :]
            dialogue.loss_mask, dialogue.logprobs = own.loss_mask, own.logprobs
        return dialogue
