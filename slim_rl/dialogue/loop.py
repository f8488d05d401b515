"""Turn loop: plays one game and fills in its records.

    await Game(env, dialogues, policy, partner, chat, limits).play()

Each turn has three steps: the seat's view, its player's turn, and what the game says to it (`Game`). The loop is async and knows no
framework: one event loop runs thousands of dialogues.

Invariants:
    Every engine call's input_ids is a prefix of the final prompt_ids + response_ids.
    A response ends with tokens of the policy: an observation is written only when the policy speaks again.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.players import Partner, PartnerFailure, Player, TokenPlayer
from slim_rl.dialogue.record import Dialogue, DialogueOver, StopReason, Turn
from slim_rl.environment import BaseEnvironment, Utterance, View, reset_to, step_of
from slim_rl.errors import ConfigError

_END = {end.value: end for end in (StopReason.AGREED, StopReason.FINISHED, StopReason.REJECTED, StopReason.MAX_TURNS)}
_ROUNDING = 1e-6  # tolerance for a sum of floats beyond the end of its range
_ERRORS = "errors"  # too many refused actions: their author decides the stop reason


class Game:
    """Running game: environment, players and turns so far.

    Args:
        dialogues: records, one per seat of the policy: one, or both of self-play, which share reward and stop reason.
        policy: engine that samples for the trained policy, or a text player in its place.
        partner: player of the other seat; None in self-play and in one-seat games.
        chat: token boundaries, also for the text of a text player; None: the policy plays by text alone.
    """

    def __init__(
        self,
        env: BaseEnvironment,
        dialogues: Sequence[Dialogue],
        policy: Player,
        partner: Partner | None,
        chat: Chat | None,
        limits: Limits,
    ) -> None:
        for name, player in (("policy", policy), ("partner", partner)):
            if player is not None and not isinstance(player, Player):
                raise ConfigError(
                    f"The {name} {type(player).__name__} is not a player; make its class a subclass of slim_rl.Partner (text), or of "
                    "slim_rl.dialogue.players.Policy (tokens)."
                )
        if chat is None and policy.reads_tokens:
            raise ValueError("a policy with tokens needs a chat template")
        self.env, self.limits, self.policy, self.partner = env, limits, policy, partner
        self.dialogues = {dialogue.seat: dialogue for dialogue in dialogues}  # of the policy's seats
        self.turns: list[Turn] = []
        self._history: dict[int, list[Utterance]] = {seat: [] for seat in range(env.seats)}
        reset_to(env, dialogues[0].game_state)
        self._rules = {seat: env.get_prompt_prefix(seat) for seat in self._history}
        self._states = {seat: env.get_state_description(seat) for seat in self._history}
        self.players: dict[int, Any] = dict.fromkeys(self._history, partner)
        for seat, dialogue in self.dialogues.items():
            self.players[seat] = policy if chat is None else TokenPlayer(policy, chat, limits, dialogue)
            price = dialogue.price
            cost = "" if price is None else f"\nEach question costs {100 * price:g}% of the highest reward."
            self._states[seat] += cost
            dialogue.prompt = _extended(env.prompt(seat), cost)
        if None in self.players.values():
            raise ValueError("a game for two needs a partner")

    async def play(self) -> None:
        """Plays to the end, and fills in the dialogues, which hold the game's origin.

        A failure of the partner or the engine is the stop reason, with reward None. Other exceptions of a player or game are raised, after
        the turns before them are filled in.
        """
        try:
            await self._play()
        finally:
            for seat, dialogue in self.dialogues.items():
                dialogue.policy = self.policy.identity  # read in the end: an endpoint may refuse some of its settings
                dialogue.partner = self.partner.identity if self.partner else dialogue.partner
                dialogue.turns = [
                    replace(turn, role="policy") if turn.seat == seat else replace(turn, role="partner", span=None)
                    for turn in self.turns
                ]
            self.env.close()

    async def _play(self) -> None:
        """Plays to the end, and writes stop reason and reward."""
        started, reason, failure = time.monotonic(), None, None
        try:
            while reason is None:
                seat = self.env.turn
                turn = await self._ask(seat, self._view(seat))
                reason = self._apply(turn)
        except DialogueOver as over:
            reason, failure = over.reason, over.failure
        reward = None if reason.is_failure else float(self.env.get_normalized_reward())
        low, high = self.env.reward_range
        if reward is not None and not (isfinite(reward) and low - _ROUNDING <= reward <= high + _ROUNDING):
            game = type(self.env).__name__
            failure = (
                f"{game}.get_normalized_reward returned {reward}, outside {game}.reward_range ({low:g} to {high:g}); return a finite number "
                "in it, or widen the range."
            )
            reason, reward = StopReason.BROKEN, None
        for dialogue in self.dialogues.values():
            dialogue.reward, dialogue.stop_reason, dialogue.failure = reward, reason, failure
            dialogue.seconds = time.monotonic() - started

    def _view(self, seat: int) -> View:
        """Returns all that a seat's player may know."""
        rules, state = self._rules[seat], self._states[seat]
        history, dialogue = tuple(self._history[seat]), self.dialogues.get(seat)
        seed = next(iter(self.dialogues.values())).seed or 0
        if dialogue is None:
            return View(seat, rules, state, history, self.env.get_private_view(seat), seed)
        has_spoken = any(turn.seat == seat for turn in self.turns)
        if history and not has_spoken:  # it reads in its prompt what the other seat said first
            dialogue.prompt = _extended(dialogue.prompt, f"\n\n{history[-1].observation}")
        private = None if self.policy.reads_tokens else self.env.get_private_view(seat)
        return View(seat, rules, state, history, private, seed, dialogue.price, tuple(dialogue.prompt))

    async def _ask(self, seat: int, view: View) -> Turn:
        """Returns the player's turn, which is kept. Raises DialogueOver if no whole one came."""
        began, is_policy, player = time.monotonic(), seat in self.dialogues, self.players[seat]
        longest = self.limits.turn_seconds if is_policy or not player.limits_itself else None
        late = f"a turn of the {'policy' if is_policy else 'partner'} took longer than {longest or 0:g} s"
        try:
            async with asyncio.timeout(longest) as clock:
                turn = await player.act(view)
            if not isinstance(turn, Turn):
                raise ConfigError(f"{type(player).__name__}.act returned {turn!r:.60}; return a slim_rl.Turn.")
            turn = replace(turn)  # a player may return one object twice
            if longest and time.monotonic() - began > longest:  # a player that blocks the event loop cannot be stopped
                raise DialogueOver(StopReason.DEADLINE, late)
        except TimeoutError:
            if not clock.expired():  # another timeout, inside the player: a fault
                raise
            raise DialogueOver(StopReason.DEADLINE, late) from None
        except PartnerFailure as failure:
            if failure.usage is not None and failure.usage.input_tokens:  # the record keeps every call that cost money
                lost = Turn("", error=failure.failure, thought=failure.thought, usage=failure.usage)
                self._keep(lost, seat, began)
            ours = is_policy and failure.reason in (StopReason.PARTNER_FAILED, StopReason.OUTAGE)
            raise DialogueOver(StopReason.ENGINE_FAILED if ours else failure.reason, failure.failure) from failure
        self._keep(turn, seat, began)
        cut, turn.cut = turn.cut, None
        if cut and not (cut is StopReason.TURN_TOKENS and self.limits.truncated_turn == "continue"):
            turn.error = f"cut short ({cut.value})"
            raise DialogueOver(cut)
        return turn

    def _keep(self, turn: Turn, seat: int, began: float) -> None:
        turn.seat, turn.seconds = seat, time.monotonic() - began
        self.turns.append(turn)

    def _apply(self, turn: Turn) -> StopReason | None:
        """Plays a turn in the game, and shows each seat what it may see. Returns the stop reason, or None."""
        author = turn.seat
        observation, done, info = step_of(self.env, turn.text)
        turn.action, turn.error = info.get("action"), info.get("error") or None
        is_valid, author_is_next = turn.error is None, self.env.turn == author
        game_answers = author_is_next and (is_valid or self.env.seats == 1)  # in no turn of the other seat
        if game_answers and observation not in ("", turn.error):
            turn.observation = observation
        for seat, history in self._history.items():
            if is_valid or seat == author:
                visible = observation if seat == self.env.turn else ""
                history.append(Utterance(author, turn.text, turn.error, visible))
        if not done:
            return None
        end = info.get("end", StopReason.FINISHED.value)
        if end == _ERRORS:
            return StopReason.POLICY_ERRORS if author in self.dialogues else StopReason.PARTNER_ERRORS
        if end not in _END:
            known, game = ", ".join((*_END, _ERRORS)), type(self.env).__name__
            raise DialogueOver(StopReason.BROKEN, f"{game}.step ended a game with end={end!r}; return one of {known}.")
        return _END[end]


def _extended(messages: Sequence[dict[str, str]], text: str) -> list[dict[str, str]]:
    """Returns chat messages with `text` at the end of the last."""
    *before, last = messages
    return [*before, {**last, "content": last["content"] + text}]
