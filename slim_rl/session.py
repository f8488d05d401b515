"""Stepwise session of a game, for policies of other frameworks: `environments/` and custom programs.

Invariants:
    The rollout worker plays the dialogue as in training; only the policy's text comes from outside. So rules, partner, limits,
    reward, stop reason and log line are those of training.
"""

import asyncio
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.chat import split_thought
from slim_rl.dialogue.games_file import GameRow, Split, deal
from slim_rl.dialogue.log import DialogueLog, annotate, read_log
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.players import Partner, PartnerFailure
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import View
from slim_rl.errors import ConfigError
from slim_rl.event_loops import wait as wait  # for programs that are not asynchronous


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation of the policy.

    Attributes:
        messages: chat messages since its last turn: first the prompt, then one user message; empty once the game is over.
        text: the messages as text; once the game is over, the last text of the partner, or of a game that answers itself.
        error: reason why the game refused the last turn; None if it did not.
        done: whether the game is over; `Session.dialogue` is then its record.
        reward: 0 until the game is over; None if it failed.
    """

    messages: tuple[dict[str, str], ...]
    text: str
    error: str | None = None
    done: bool = False
    reward: float | None = 0.0


class Games:
    """Games and partner of a config, shared by the sessions of one process.

    Args:
        config: a config, the path of its file, its keys as a mapping, or None for `matching_offline`.
        partner: partner in place of the config's `partner.kind`; None: that of the config.
        overrides: changes such as ``game.n=3``.
        log: file to which each finished dialogue is appended, by one process at a time; its folder keeps the partner's spending. None: no log.
        scope: prefix of the dialogues' ids and part of their seeds.
        selfplay: whether to accept a config of self-play, which a `Session` cannot play.

    Raises:
        SlimError: the config is invalid, its partner cannot be made, or self-play is not accepted.

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
        if config is None or isinstance(config, str | Path):
            self.config = load_config(config or "matching_offline", overrides)
        else:
            self.config = parse_config(config.model_dump() if isinstance(config, Config) else config, overrides)
        if self.config.selfplay and not selfplay:
            raise ConfigError(
                "partner.kind=self needs two policies, but an adapter has one: set partner.kind to a partner."
            )
        self.worker = RolloutWorker(self.config, None)
        self.log = DialogueLog(log) if log is not None else None
        if log is not None:
            self.worker.keep_spend(Path(log).parent)
        self.scope = scope
        self._played: Counter[str] = Counter()
        for dialogue in read_log(log) if log is not None and Path(log).is_file() else ():  # of an earlier process
            name, _, number = dialogue.id.removeprefix(f"{scope}/").rpartition("/")
            self._played[name] = max(self._played[name], int(number) + 1 if number.isdigit() else 0)

    def deal(self, split: Split, number: int, seed: int | None = None) -> list[GameRow]:
        """Returns `number` games, generated from `seed`; None: from `data.seed`, as the config's files."""
        config = self.config if seed is None else self.config.changed(data={"seed": seed})
        return list(deal(config, split, number))

    def session(self) -> "Session":
        """Returns a new session, which plays one game at a time."""
        return Session(self)

    def number(self, row: GameRow) -> int:
        """Returns the number of the next dialogue of a row."""
        self._played[row.name] += 1
        return self._played[row.name] - 1

    def keep(self, dialogue: Dialogue) -> None:
        """Logs a finished dialogue, if there is a log. An aborted one is not logged."""
        if self.log is not None and dialogue.stop_reason is not StopReason.ABORTED:
            self.log.append(dialogue)


class Session:
    """Policy's side of one game at a time: `reset` opens it, `step` answers until an observation is `done`.

    Attributes:
        dialogue: record of the game once it is over; None before.
    """

    dialogue: Dialogue | None = None

    def __init__(self, games: Games) -> None:
        self.games = games
        self._seat = _Seat()
        self._task: asyncio.Task[list[Dialogue]] | None = None
        self._last = Observation((), "There is no game: reset first.", done=True, reward=None)
        self._has_prompt = False  # whether the policy has read it

    async def reset(self, row: GameRow, number: int | None = None, phase: str = "eval") -> Observation:
        """Starts a game, and aborts an unfinished one.

        Args:
            number: number among the dialogues of the row, on which the partner's random draws depend; None: the next one.
        """
        await self.leave()
        worker = self.games.worker
        self._has_prompt, self._seat, self.dialogue = False, _Seat(), None
        number = self.games.number(row) if number is None else number
        spec = worker.spec(row, self.games.scope, number, phase=phase)
        self._task = asyncio.create_task(worker.play(spec, policy=self._seat))
        self._task.add_done_callback(self._seat.end)
        self._abandoned = weakref.finalize(self, _cancel, self._task)
        return await self._next()

    async def step(self, text: str, *, thought: str | None = None, cut: bool = False) -> Observation:
        """Plays a turn of the policy and returns the next observation; once the game is over, the last one again.

        Args:
            text: text of the turn; a ``<think>`` in it is its thought.
            thought: thought of the turn; None without one.
            cut: whether the turn reached its limit of tokens.
        """
        if self._task is None:
            return self._last
        speech, marked = split_thought(text)
        self._seat.words.put_nowait(
            Turn(speech, thought=marked or thought, cut=StopReason.TURN_TOKENS if cut else None)
        )
        return await self._next()

    async def leave(self, reason: StopReason = StopReason.ABORTED, why: str = "the game was aborted") -> Observation:
        """Ends an unfinished game, if there is one, with a reason outside its rules. An aborted game is not logged."""
        if self._task is not None:
            self._seat.words.put_nowait(PartnerFailure(why, reason))
            while self._task is not None:
                await self._next()
        return self._last

    async def _next(self) -> Observation:
        view = await self._seat.views.get()
        self._last = self._end() if view is None else self._observation(view)
        return self._last

    def _end(self) -> Observation:
        assert self._task is not None
        task, self._task = self._task, None
        self._abandoned.detach()
        self._last = Observation((), "The game failed.", done=True, reward=None)
        (self.dialogue,) = task.result()
        self.games.keep(self.dialogue)
        turns = self.dialogue.turns
        last = "" if not turns else turns[-1].text if turns[-1].role == "partner" else turns[-1].observation or ""
        error = turns[-1].error if turns and turns[-1].role == "policy" else None
        return Observation((), last, error, done=True, reward=self.dialogue.reward)

    def _observation(self, view: View) -> Observation:
        if not self._has_prompt:
            self._has_prompt, messages = True, view.prompt
            return Observation(messages, "\n\n".join(message["content"] for message in messages))
        error = view.history[-1].error if view.history else None
        return Observation(({"role": "user", "content": view.observation},), view.observation, error)


class _Seat(Partner):
    """Player of the policy's seat: it hands out each view and waits for the turn."""

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
    """Cancels the game of a session that no longer exists."""
    if not task.done() and not task.get_loop().is_closed():
        task.get_loop().call_soon_threadsafe(task.cancel)


def metrics(dialogue: Dialogue) -> dict[str, float]:
    """Returns the measures of a finished dialogue except its reward, by the tracker's names, without NaN; empty if it failed."""
    if dialogue.failed:
        return {}
    annotate(dialogue)
    return {name: value for name, value in batch_metrics([dialogue]).items() if not name.startswith(_NOT_MEASURES)}


_NOT_MEASURES = ("reward", "failed", "failure/", "stop/", "turns_", "partner_seconds_")
