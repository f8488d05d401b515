"""Stepwise session of a game, for a policy of another framework: `environments/` and programs of a user's own.

    the rollout worker plays the dialogue, turn for turn as in training; only the policy's words come from outside

So rules, partner, limits, reward, stop reason and log line are `play_dialogue`'s.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.chat import split_thought
from slim_rl.dialogue.dealing import deal
from slim_rl.dialogue.log import DialogueLog, annotate
from slim_rl.dialogue.partner import PartnerFailure
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.rows import GameRow, Split
from slim_rl.dialogue.token_player import opening
from slim_rl.dialogue.tracked import batch_metrics
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import View
from slim_rl.errors import ConfigError
from slim_rl.event_loops import wait as wait  # for programs that are not asynchronous


@dataclass(frozen=True, slots=True)
class Observation:
    """What the policy is told.

    Attributes:
        messages: the chat messages since it last spoke: first its prompt, then one of the user's; empty once the game is over.
        text: the same as text. Of a game that is over: the last words of the partner, or of a game that answers itself.
        error: why the game refused what the policy just said; None if it did not.
        done: whether the game is over; then `Session.dialogue` is its record.
        reward: 0 until the game is over; None if it failed, which says nothing about the policy.
    """

    messages: tuple[dict[str, str], ...]
    text: str
    error: str | None = None
    done: bool = False
    reward: float | None = 0.0


DEFAULT = "matching_offline"


class Games:
    """The games of a config and whoever sits opposite the policy, shared by the sessions of one process.

    Args:
        config: a config, the path of its file, its keys as a mapping, or None for `matching_offline`.
        partner: in place of the config's `partner.kind`.
        overrides: changes such as ``game.n=3``.
        log: a file that each finished dialogue is appended to; one process writes it. What the partner costs is kept in its folder.
        scope: goes before the dialogues' ids, and into their seeds.
        selfplay: whether a config may ask for self-play, which a `Session` cannot play.

    Raises:
        SlimError: the config is wrong, its partner cannot be made, or it asks for self-play where that may not be.

    Examples:
        >>> games = Games({"game": {"n": 3}, "data": {"num_train": 100}}, partner="shy", overrides=["limits.turn_tokens=64"])
        >>> games.config.partner.kind, games.config.limits.turn_tokens
        ('shy', 64)
    """

    def __init__(
        self,
        config: Config | str | Path | Mapping[str, Any] | None = None,
        *,
        partner: str | None = None,
        overrides: Sequence[str] = (),
        log: str | Path | None = None,
        scope: str = "adapter",
        selfplay: bool = False,
    ) -> None:
        overrides = [*overrides, *([f"partner.kind={partner}"] if partner else [])]
        if config is None:
            config = DEFAULT
        if isinstance(config, str | Path):
            self.config = load_config(config, overrides)
        else:
            self.config = parse_config(config.model_dump() if isinstance(config, Config) else config, overrides)
        if self.config.selfplay and not selfplay:
            raise ConfigError("partner.kind is self, but an adapter has one policy: set partner.kind to a partner.")
        self.worker = RolloutWorker(self.config, None)
        self.log = DialogueLog(log) if log is not None else None
        if log is not None:
            self.worker.keep_spend(Path(log).parent)
        self.scope = scope
        self._played: Counter[str] = Counter()

    def deal(self, split: Split, number: int, seed: int | None = None) -> list[GameRow]:
        """`number` games; those of the config's files, unless another `seed` than `data.seed` is given."""
        config = self.config if seed is None else self.config.changed(data={"seed": seed})
        return list(deal(config, split, number))

    def session(self) -> Session:
        """A seat at one game at a time."""
        return Session(self)

    def number(self, row: GameRow) -> int:
        """The number of the next dialogue of a row."""
        self._played[row.name] += 1
        return self._played[row.name] - 1

    def keep(self, dialogue: Dialogue) -> None:
        """Logs a finished dialogue, if there is a log. An aborted one is not logged."""
        if self.log is not None and dialogue.stop_reason is not StopReason.ABORTED:
            self.log.append(dialogue)


class Session:
    """Plays one game at a time. Open it with `reset`, answer with `step` until an observation is `done`.

    Attributes:
        dialogue: the record of the game, once it is over.
    """

    dialogue: Dialogue | None = None

    def __init__(self, games: Games) -> None:
        self.games = games
        self._seat = _Seat()
        self._task: asyncio.Task[list[Dialogue]] | None = None
        self._last = Observation((), "No game is dealt: reset first.", done=True, reward=None)
        self._dealt = False  # whether the policy has read its prompt

    async def reset(self, row: GameRow, number: int | None = None, phase: str = "eval") -> Observation:
        """Deals a game; one not yet ended is aborted. `number` tells the dialogues of a row apart, their partner's draws included."""
        await self.leave()
        worker = self.games.worker
        self._dealt, self._seat, self.dialogue = False, _Seat(), None
        number = self.games.number(row) if number is None else number
        spec = worker.spec(row, self.games.scope, number, phase=phase)
        self._task = asyncio.create_task(worker.play(spec, policy=self._seat))
        self._task.add_done_callback(self._seat.end)
        self._abandoned = weakref.finalize(self, _cancel, self._task)
        return await self._heard()

    async def step(self, text: str, *, thought: str | None = None, cut: bool = False) -> Observation:
        """Says something and hears the answer. A ``<think>`` in `text` is not said. `cut`: the turn met its limit of tokens.

        Once the game is over, the last observation again.
        """
        if self._task is None:
            return self._last
        said, aloud = split_thought(text)
        self._seat.words.put_nowait(Turn(said, thought=aloud or thought, cut=StopReason.TURN_TOKENS if cut else None))
        return await self._heard()

    async def leave(self, reason: StopReason = StopReason.ABORTED, why: str = "the game was aborted") -> Observation:
        """Ends a game that has not ended, if there is one, for a reason that is not the game's. An aborted game is not logged."""
        if self._task is not None:
            self._seat.words.put_nowait(PartnerFailure(why, reason))
            while self._task is not None:
                await self._heard()
        return self._last

    async def _heard(self) -> Observation:
        view = await self._seat.views.get()
        if view is not None:
            self._last = self._observation(view)
            return self._last
        assert self._task is not None
        task, self._task = self._task, None
        self._abandoned.detach()
        self._last = Observation((), "The game broke.", done=True, reward=None)
        (self.dialogue,) = task.result()
        self.games.keep(self.dialogue)
        turns = self.dialogue.turns
        last = "" if not turns else turns[-1].text if turns[-1].role == "partner" else turns[-1].observation or ""
        error = turns[-1].error if turns and turns[-1].role == "policy" else None
        self._last = Observation((), last, error, done=True, reward=self.dialogue.reward)
        return self._last

    def _observation(self, view: View) -> Observation:
        if not self._dealt:
            self._dealt, messages = True, opening(list(view.prompt), view)
            return Observation(tuple(messages), "\n\n".join(message["content"] for message in messages))
        error = view.history[-1].error if view.history else None
        return Observation(({"role": "user", "content": view.observation},), view.observation, error)


class _Seat:
    """The policy's seat, on the protocol of a partner: it hands each view out and waits for the words."""

    identity: ClassVar[dict[str, Any]] = {"kind": "external"}

    def __init__(self) -> None:
        self.views: asyncio.Queue[View | None] = asyncio.Queue()
        self.words: asyncio.Queue[Turn | PartnerFailure] = asyncio.Queue()

    async def act(self, view: View) -> Turn:
        self.views.put_nowait(view)
        words = await self.words.get()
        if isinstance(words, PartnerFailure):
            raise words
        return words

    def end(self, _: asyncio.Task[Any]) -> None:
        self.views.put_nowait(None)


def _cancel(task: asyncio.Task[Any]) -> None:
    """Calls off the game of a session that is no longer held."""
    if not task.done() and not task.get_loop().is_closed():
        task.get_loop().call_soon_threadsafe(task.cancel)


def metrics(dialogue: Dialogue) -> dict[str, float]:
    """What a finished dialogue measures beside its reward, by the names of the tracker. A share of nothing is left out, and so
    is what only a batch has. Empty if the game failed.
    """
    if dialogue.failed:
        return {}
    annotate(dialogue)
    measured = batch_metrics([dialogue])
    return {name: measured[name] for name in measured if not name.startswith(_NOT_MEASURES)}


_NOT_MEASURES = ("reward", "failed", "failure/", "stop/", "turns_", "partner_seconds_")
