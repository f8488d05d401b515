"""Plays one game and keeps its tokens. The policy's input is always prompt_ids + response_ids so far, and grows only at its end:

    every engine call's input_ids is a prefix of the final prompt_ids + response_ids

An observation is written only when the policy is about to speak again, so a response ends with the policy's own tokens.
Framework-free and async: thousands of dialogues run side by side on one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.partner import Partner, PartnerFailure
from slim_rl.dialogue.policy import Policy, PolicyFailure
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.environment import BaseEnvironment, Utterance, View

_END = {"agreed": StopReason.AGREED, "finished": StopReason.FINISHED, "max_turns": StopReason.MAX_TURNS}


async def play_dialogue(
    env: BaseEnvironment,
    policy: Policy,
    partner: Partner | None,
    chat: Chat,
    limits: Limits,
    *,
    game_state: Any,
    id: str,
    game_id: str = "",
    seat: int = 0,
    seed: int = 0,
    prompt: Sequence[dict[str, str]] | None = None,
    resume: Dialogue | None = None,
) -> Dialogue:
    """Plays `game_state` with the policy on `seat` and the partner on the other one.

    Args:
        partner: None for a one-seat game.
        id: names the dialogue; also the policy's routing key.
        seed: goes into the partner's view.
        prompt: the policy's opening messages, if not the game's own (the last one must be the user's).
        resume: a dialogue of this very game that was called off; its turns are played again as recorded and the game goes on.

    Returns:
        The dialogue. A failure of the partner or the engine is its stop reason, with reward None; it is never raised.
    """
    table = _Table(env, chat, limits, seed, _state_dict(game_state))
    identity = partner.identity if partner else {"kind": "none"}
    table.seats[seat] = _PolicySeat(list(prompt) if prompt else None, policy=policy, key=id)
    if env.seats == 2:
        if partner is None:
            raise ValueError("a game for two needs a partner")
        table.seats[1 - seat] = _PartnerSeat(partner)
    await table.play(game_state, resume)
    return table.dialogue(seat, id, game_id, identity)


async def play_selfplay(
    env: BaseEnvironment,
    policy: Policy,
    chat: Chat,
    limits: Limits,
    *,
    game_state: Any,
    id: str,
    game_id: str = "",
    seed: int = 0,
) -> tuple[Dialogue, Dialogue]:
    """Plays `game_state` with the policy on both seats. Returns one dialogue a seat, each with its own view and tokens; ids and
    routing keys end in ``/0`` and ``/1``. Reward and stop reason are shared.
    """
    table = _Table(env, chat, limits, seed, _state_dict(game_state))
    for seat in (0, 1):
        table.seats[seat] = _PolicySeat(policy=policy, key=f"{id}/{seat}")
    await table.play(game_state, None)
    first, second = (table.dialogue(seat, f"{id}/{seat}", game_id, {"kind": "self"}) for seat in (0, 1))
    return first, second


async def demonstrate(
    env: BaseEnvironment,
    player: Partner,
    partner: Partner,
    chat: Chat,
    limits: Limits,
    *,
    game_state: Any,
    id: str,
    game_id: str = "",
    seat: int = 0,
    seed: int = 0,
    prompt: Sequence[dict[str, str]] | None = None,
) -> Dialogue:
    """Plays `game_state` with a scripted `player` on the policy's seat, and writes its words as if they had been sampled
    (logprobs 0): tokens and masks to teach a model by, or to replay a policy's game by hand.
    """
    table = _Table(env, chat, limits, seed, _state_dict(game_state))
    table.seats[seat] = _DemonstratorSeat(list(prompt) if prompt else None, player=player)
    table.seats[1 - seat] = _PartnerSeat(partner)
    await table.play(game_state, None)
    return table.dialogue(seat, id, game_id, partner.identity)


async def converse(
    env: BaseEnvironment, players: Sequence[Partner], limits: Limits, *, game_state: Any, seed: int = 0
) -> tuple[list[Turn], StopReason, float | None]:
    """Plays `game_state` between two players by text alone, no tokens kept: turns, stop reason, reward."""
    table = _Table(env, None, limits, seed, _state_dict(game_state))
    table.seats.update({seat: _PartnerSeat(player) for seat, player in enumerate(players)})
    await table.play(game_state, None)
    assert table.stop_reason is not None
    return table.turns, table.stop_reason, table.reward


class _Over(Exception):
    """The dialogue ends here, for a reason that is not the game's."""

    def __init__(self, reason: StopReason, failure: str | None = None) -> None:
        super().__init__(failure or reason.value)
        self.reason, self.failure = reason, failure


@dataclass
class _Said:
    """What a seat came up with at its turn, before the game has seen it."""

    text: str
    thought: str | None = None
    span: tuple[int, int] | None = None
    usage: dict[str, Any] | None = None
    cut: StopReason | None = None  # the limit that cut it short


@dataclass
class _PartnerSeat:
    partner: Partner
    history: list[Utterance] = field(default_factory=list)

    async def speak(self, table: _Table, seat: int, observation: str | None) -> _Said:
        try:
            reply = await self.partner.reply(table.view(seat, self.history))
        except PartnerFailure as failure:
            raise _Over(failure.reason, str(failure)) from failure
        return _Said(reply.text, usage=asdict(reply.usage) if reply.usage else None)


@dataclass
class _TokenSeat:
    """A seat whose tokens are kept. `ids` is prompt + response: the one list that every engine call is given."""

    prompt: list[dict[str, str]] | None = None
    history: list[Utterance] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    prompt_length: int = 0
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    last_span: tuple[int, int] = (0, 0)

    def hear(self, table: _Table, seat: int, observation: str | None) -> None:
        """Writes what happened since the policy last spoke. The first time, that is the prompt."""
        if not self.ids:
            self.prompt = self.prompt or table.env.prompt(seat)
            if observation is not None and self.history:  # the partner opened: its words follow the state
                *before, last = self.prompt
                self.prompt = [*before, {**last, "content": f"{last['content']}\n\n{observation}"}]
            self.ids = table.chat.prompt_ids(self.prompt)
            self.prompt_length = len(self.ids)
            return
        start, end = (self.prompt_length + index for index in self.last_span)
        delta = table.chat.turn_ids(self.ids[start:end], observation or "")
        for limit, most in _budgets(table.limits, self.prompt_length):
            if len(self.ids) + len(delta) >= most:
                raise _Over(limit)
        self.ids += delta
        self.loss_mask += [0] * len(delta)
        self.logprobs += [0.0] * len(delta)

    def add_sampled(self, ids: list[int], logprobs: list[float]) -> tuple[int, int]:
        if len(ids) != len(logprobs):
            raise _Over(StopReason.ENGINE_FAILED, f"the engine gave {len(ids)} tokens but {len(logprobs)} logprobs")
        start = len(self.loss_mask)
        self.ids += ids
        self.loss_mask += [1] * len(ids)
        self.logprobs += logprobs
        self.last_span = (start, len(self.loss_mask))
        return self.last_span

    def allowance(self, limits: Limits) -> tuple[int, StopReason]:
        """Tokens the next turn may have, and the limit that sets it."""
        allowed, limit = limits.turn_tokens, StopReason.TURN_TOKENS
        for reason, most in _budgets(limits, self.prompt_length):
            left = most - len(self.ids)
            if left <= 0:
                raise _Over(reason)
            if left < allowed:
                allowed, limit = left, reason
        return allowed, limit


@dataclass
class _PolicySeat(_TokenSeat):
    """Its words are sampled."""

    policy: Policy = field(kw_only=True)
    key: str = field(kw_only=True)

    @property
    def identity(self) -> dict[str, Any]:
        return self.policy.identity

    async def speak(self, table: _Table, seat: int, observation: str | None) -> _Said:
        self.hear(table, seat, observation)
        allowed, limit = self.allowance(table.limits)
        try:
            sampled = await self.policy.sample(self.ids, allowed, self.key)
        except PolicyFailure as failure:
            raise _Over(failure.reason, str(failure)) from failure
        if sampled.finish == "abort":
            # An aborted turn leaves no trace: what is recorded are whole turns, and a resumed game samples this one anew.
            raise _Over(StopReason.ABORTED, "the engine was told to stop")
        span = self.add_sampled(sampled.ids, sampled.logprobs)
        text, thought = table.chat.decode(sampled.ids)
        return _Said(text, thought, span, cut=limit if sampled.finish == "length" else None)


@dataclass
class _DemonstratorSeat(_TokenSeat):
    """Its words are a scripted player's, written as tokens."""

    player: Partner = field(kw_only=True)

    @property
    def identity(self) -> dict[str, Any]:
        return self.player.identity

    async def speak(self, table: _Table, seat: int, observation: str | None) -> _Said:
        self.hear(table, seat, observation)
        reply = await self.player.reply(table.view(seat, self.history))
        ids = table.chat.said_ids(reply.text)
        allowed, limit = self.allowance(table.limits)
        if len(ids) > allowed:
            return _Said(reply.text, span=self.add_sampled(ids[:allowed], [0.0] * allowed), cut=limit)
        return _Said(reply.text, span=self.add_sampled(ids, [0.0] * len(ids)))


def _budgets(limits: Limits, prompt_length: int) -> list[tuple[StopReason, int]]:
    """The limits on prompt + response together."""
    budgets = []
    if limits.dialogue_tokens is not None:
        budgets.append((StopReason.DIALOGUE_TOKENS, prompt_length + limits.dialogue_tokens))
    if limits.context_tokens is not None:
        budgets.append((StopReason.CONTEXT_LENGTH, limits.context_tokens))
    return budgets


class _Table:
    """Two seats (or one), the game between them, and the record of what was said."""

    def __init__(
        self, env: BaseEnvironment, chat: Chat | None, limits: Limits, seed: int, game_state: dict[str, Any]
    ) -> None:
        self.env, self.limits, self.seed, self.game_state = env, limits, seed, game_state
        self._chat = chat
        self.seats: dict[int, _PolicySeat | _DemonstratorSeat | _PartnerSeat] = {}
        self.turns: list[Turn] = []
        self.stop_reason: StopReason | None = None
        self.failure: str | None = None
        self.reward: float | None = None
        self.seconds = 0.0
        self._fixed: dict[int, tuple[str, str]] = {}

    @property
    def chat(self) -> Chat:
        assert self._chat is not None, "a seat with tokens needs a chat template"
        return self._chat

    def view(self, seat: int, history: list[Utterance]) -> View:
        if seat not in self._fixed:
            self._fixed[seat] = self.env.get_prompt_prefix(seat), self.env.get_state_description(seat)
        rules, state = self._fixed[seat]
        return View(seat, rules, state, tuple(history), self.env.get_private_view(seat), self.seed)

    async def play(self, game_state: Any, resume: Dialogue | None) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.limits.seconds) as deadline:
                await self._play(game_state, resume)
        except _Over as over:
            self.stop_reason, self.failure = over.reason, over.failure
        except TimeoutError:
            if not deadline.expired():  # somebody else's timeout: a fault of its own
                raise
            self.stop_reason, self.failure = StopReason.DEADLINE, f"longer than {self.limits.seconds} s"
        else:
            assert self.stop_reason is not None
        self.reward = None if self.stop_reason.is_failure else self.env.get_normalized_reward()
        self.seconds = time.monotonic() - started + (resume.seconds if resume else 0.0)
        self.env.close()

    async def _play(self, game_state: Any, resume: Dialogue | None) -> None:
        observation: str | None
        observation, _ = self.env.reset(game_state)
        if resume is not None:
            observation = self._replay(resume, observation)
        while self.stop_reason is None:
            author = self.env.turn
            seat = self.seats[author]
            began = time.monotonic()
            said = await seat.speak(self, author, observation)
            seconds = time.monotonic() - began
            if said.cut and not (said.cut is StopReason.TURN_TOKENS and self.limits.truncated_turn == "continue"):
                error = f"cut short ({said.cut.value})"
                self.turns.append(Turn(author, "", said.text, None, error, said.thought, said.span, seconds))
                raise _Over(said.cut)
            observation = self._step(author, said, seconds)

    def _step(self, author: int, said: _Said, seconds: float) -> str:
        """Gives the game what `author` said, and the seats what they may see of it."""
        observation, done, info = self.env.step(said.text)
        error = info.get("error")
        self.turns.append(
            Turn(author, "", said.text, info.get("action"), error, said.thought, said.span, seconds, said.usage)
        )
        for number, seat in self.seats.items():
            if error is None or number == author:
                seat.history.append(Utterance(author, said.text, error))
        if done:
            by_policy = isinstance(self.seats[author], _TokenSeat)
            errors = StopReason.POLICY_ERRORS if by_policy else StopReason.PARTNER_ERRORS
            self.stop_reason = _END.get(info.get("end", "finished"), errors)
        return observation

    def _replay(self, old: Dialogue, observation: str) -> str:
        for turn in old.turns:
            seat = self.seats[self.env.turn]
            span = None
            if isinstance(seat, _TokenSeat):
                if turn.span is None:
                    raise ValueError(f"{old.id}: a policy turn without its tokens cannot be resumed")
                seat.hear(self, turn.seat, observation)
                start, end = turn.span
                span = seat.add_sampled(old.response_ids[start:end], old.logprobs[start:end])
            observation = self._step(turn.seat, _Said(turn.text, turn.thought, span, turn.usage), turn.seconds)
        return observation

    def dialogue(self, seat: int, id: str, game_id: str, partner: dict[str, Any]) -> Dialogue:
        """The record as `seat` lived it."""
        own = self.seats[seat]
        assert isinstance(own, _PolicySeat | _DemonstratorSeat)
        turns = []
        for turn in self.turns:
            mine = turn.seat == seat
            fields = {name: getattr(turn, name) for name in Turn.__slots__}
            fields.update(role="policy" if mine else "partner", span=turn.span if mine else None)
            turns.append(Turn(**fields))
        return Dialogue(
            id=id,
            game_id=game_id,
            seat=seat,
            seed=self.seed,
            game_state=self.game_state,
            policy=own.identity,
            partner=partner,
            prompt=own.prompt or [],
            turns=turns,
            reward=self.reward,
            stop_reason=self.stop_reason,
            failure=self.failure,
            seconds=self.seconds,
            prompt_ids=own.ids[: own.prompt_length],
            response_ids=own.ids[own.prompt_length :],
            loss_mask=own.loss_mask,
            logprobs=own.logprobs,
        )


def _state_dict(game_state: Any) -> dict[str, Any]:
    to_dict = getattr(game_state, "to_dict", None)
    return dict(to_dict() if to_dict else game_state)
