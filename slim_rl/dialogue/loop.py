"""Turn loop of one game, free of frameworks and async: thousands of dialogues run on one event loop.

Invariants:
    Every engine call's input_ids is a prefix of the final prompt_ids + response_ids.
    A response ends with tokens of the policy: an observation is written only when the policy speaks again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace
from math import isfinite
from typing import Any

from slim_rl.config import Limits
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.partner import Partner, PartnerFailure, Usage
from slim_rl.dialogue.policy import Policy
from slim_rl.dialogue.record import Dialogue, DialogueOver, StopReason, Turn
from slim_rl.dialogue.token_player import TokenPlayer, opening
from slim_rl.dialogue.training_reward import price_sentence
from slim_rl.environment import BaseEnvironment, Utterance, View, as_dict, reset_to, step_of

_END = {end.value: end for end in (StopReason.AGREED, StopReason.FINISHED, StopReason.REJECTED, StopReason.MAX_TURNS)}
_ROUNDING = 1e-6  # tolerance for a sum of floats beyond the end of its range
_ERRORS = "errors"  # too many refused actions: their author decides the stop reason


Player = Policy | Partner


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
    """Plays `game_state` with the policy on `seat` and the partner on the other seat.

    Args:
        policy: engine that samples for the trained policy, or a text player in its place.
        partner: the other player; None for a one-seat game.
        chat: token boundaries, also for the text of a text player; None: the policy plays by text alone.
        id: name of the dialogue and routing key of the policy.
        seed: seed in the players' views.
        price: question cost that the policy reads with its state; None: it reads none.

    Returns:
        The dialogue. A failure of the partner or the engine is its stop reason, with reward None; it is never raised.
    """
    game = _Game(env, limits, game_state, seed, price)
    game.seat_policy(seat, policy, chat, id)
    if env.seats == 2:
        if partner is None:
            raise ValueError("a game for two needs a partner")
        game.players[1 - seat] = partner
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
    """Plays `game_state` with the policy on both seats and returns one dialogue per seat, with its own view and tokens.

    Ids and routing keys end in ``/0`` and ``/1``. Reward and stop reason are shared.
    """
    game = _Game(env, limits, game_state, seed, price)
    for seat in (0, 1):
        game.seat_policy(seat, policy, chat, f"{id}/{seat}")
    await game.play()
    first, second = (game.dialogue(seat, f"{id}/{seat}", game_id, {"kind": "self"}) for seat in (0, 1))
    return first, second


class _Game:
    """Running game: environment, players and turns so far. Its environment is reset when it is made."""

    def __init__(self, env: BaseEnvironment, limits: Limits, game_state: Any, seed: int, price: float | None) -> None:
        self.env, self.limits, self.seed, self.price = env, limits, seed, price
        self.game_state = as_dict(game_state)
        self.players: dict[int, Any] = {}
        self._prompts: dict[int, list[dict[str, str]]] = {}  # of the policy's seats
        self._opened: dict[int, list[dict[str, str]]] = {}  # messages before the policy's first turn
        self.turns: list[Turn] = []
        self.stop_reason: StopReason | None = None
        self.failure: str | None = None
        self.reward: float | None = None
        self.seconds = 0.0
        self._history: dict[int, list[Utterance]] = {0: [], 1: []}
        reset_to(env, game_state)
        self._dealt = [(env.get_prompt_prefix(seat), env.get_state_description(seat)) for seat in range(env.seats)]

    def seat_policy(self, seat: int, policy: Any, chat: Chat | None, key: str) -> None:
        """Seats the policy, with the question cost in its opening messages if there is one."""
        if chat is None and not hasattr(policy, "act"):
            raise ValueError("a policy with tokens needs a chat template")
        self.players[seat] = policy if chat is None else TokenPlayer(policy, chat, self.limits, key)
        prompt = self.env.prompt(seat)
        if self.price is not None:
            cost = f"\n{price_sentence(self.price)}"
            rules, state = self._dealt[seat]
            self._dealt[seat] = rules, state + cost
            *before, last = prompt
            prompt = [*before, {**last, "content": last["content"] + cost}]
        self._prompts[seat] = prompt

    def view(self, seat: int) -> View:
        """Returns all that a seat's player may know."""
        rules, state = self._dealt[seat]
        # an engine reads tokens alone
        private = (
            None if hasattr(getattr(self.players[seat], "player", None), "sample") else self.env.get_private_view(seat)
        )
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
        """Reads the game's reward. The dialogue fails if the reward is not finite, or outside the game's range."""
        reward, (low, high) = float(self.env.get_normalized_reward()), self.env.reward_range
        if isfinite(reward) and low - _ROUNDING <= reward <= high + _ROUNDING:
            self.reward = reward
            return
        game, self.stop_reason = type(self.env).__name__, StopReason.BROKEN
        self.failure = (
            f"{game}.get_normalized_reward returned {reward}, outside {game}.reward_range ({low:g} to {high:g}); return a finite number in "
            "it, or widen the range."
        )

    async def _turn(self) -> None:
        author, began = self.env.turn, time.monotonic()
        is_policy = author in self._prompts
        most = self.limits.turn_seconds if is_policy else None
        view = self.view(author)
        if is_policy and author not in self._opened:
            self._opened[author] = opening(view.prompt, view)
        try:
            async with asyncio.timeout(most) as clock:
                turn: Turn = await self.players[author].act(view)
        except TimeoutError:
            if not clock.expired():  # another timeout, inside the player: a fault
                raise
            raise DialogueOver(StopReason.DEADLINE, f"a turn of the policy took longer than {most:g} s") from None
        except PartnerFailure as failure:
            if failure.usage is not None and failure.usage.input_tokens:  # the record keeps every call that cost money
                lost = Turn("", error=failure.failure, thought=failure.thought, usage=failure.usage)
                self._keep(lost, author, began)
            ours = is_policy and failure.reason in (StopReason.PARTNER_FAILED, StopReason.OUTAGE)
            raise DialogueOver(StopReason.ENGINE_FAILED if ours else failure.reason, failure.failure) from failure
        self._keep(turn, author, began)
        cut, turn.cut = turn.cut, None
        if cut and not (cut is StopReason.TURN_TOKENS and self.limits.truncated_turn == "continue"):
            turn.error = f"cut short ({cut.value})"
            raise DialogueOver(cut)
        self._step(turn)

    def _keep(self, turn: Turn, author: int, began: float) -> None:
        turn.seat, turn.seconds = author, time.monotonic() - began
        turn.usage = asdict(turn.usage) if isinstance(turn.usage, Usage) else turn.usage
        self.turns.append(turn)

    def _step(self, turn: Turn) -> None:
        """Passes a turn to the game, and to the seats what each may see of it."""
        author = turn.seat
        observation, done, info = step_of(self.env, turn.text)
        turn.action, turn.error = info.get("action"), info.get("error")
        if (
            self.env.turn == author
            and (turn.error is None or self.env.seats == 1)
            and observation not in ("", turn.error)
        ):
            turn.observation = observation  # the game answers: no turn of the other seat has this text
        for seat, history in self._history.items():
            if turn.error is None or seat == author:
                visible = observation if seat == self.env.turn else ""
                history.append(Utterance(author, turn.text, turn.error, visible))
        if done:
            self._end(info.get("end", StopReason.FINISHED.value), author)

    def _end(self, end: Any, author: int) -> None:
        """Sets the stop reason by the game's own end; an unknown end fails the dialogue."""
        if end == _ERRORS:
            self.stop_reason = StopReason.POLICY_ERRORS if author in self._prompts else StopReason.PARTNER_ERRORS
        elif end in _END:
            self.stop_reason = _END[end]
        else:
            self.stop_reason = StopReason.BROKEN
            known = ", ".join((*_END, _ERRORS))
            self.failure = f"{type(self.env).__name__}.step ended the game with end={end!r}; return one of {known}."

    def dialogue(self, seat: int, id: str, game_id: str, partner: dict[str, Any]) -> Dialogue:
        """Returns the record from the policy seat `seat`."""
        player = self.players[seat]
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
            policy=player.identity,
            partner=partner,
            environment=f"{type(self.env).__module__}.{type(self.env).__qualname__}",
            prompt=self._opened.get(seat, self._prompts[seat]),
            turns=turns,
            reward=self.reward,
            stop_reason=self.stop_reason,
            failure=self.failure,
            seconds=self.seconds,
            price=self.price,
        )
        if isinstance(player, TokenPlayer):
            dialogue.prompt_ids, dialogue.response_ids = (
                player.ids[: player.prompt_length],
                player.ids[player.prompt_length :],
            )
            dialogue.loss_mask, dialogue.logprobs = player.loss_mask, player.logprobs
        return dialogue
