"""The rollout worker: built once a process from a `Config`, it turns rows of a games file into dialogues.

    every dialogue of this project, in training and evaluation alike, is named, seeded, grouped, played and stamped here

`spec` says which dialogue is to be played: its id, its seed and its group follow from the row, the scope (a training step, or
"eval") and its number among the dialogues of that row, so that any process plays the same dialogue again. `play` plays it. What
breaks in one game is a failed dialogue (`BROKEN`) and no other game notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl.config import Config, Limits
from slim_rl.config.learned import learned_settings
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.factory import make_environment, make_partner, partner_name
from slim_rl.dialogue.loop import Player, play_dialogue, play_selfplay
from slim_rl.dialogue.partner import Partner
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import BaseEnvironment, load_object
from slim_rl.errors import SlimError
from slim_rl.seeds import seed_of

log = logging.getLogger(__name__)
EXPLORING = "slim_rl.lab.exploring.exploring"  # the policy of a training dialogue, with train.exploring_starts


@dataclass(frozen=True, slots=True)
class DialogueSpec:
    """One dialogue to be played; under self-play one for each seat.

    Attributes:
        id: names the dialogue in the run; under self-play the seats' ids end in ``/0`` and ``/1``.
        seed: of all that is drawn in it.
        group: names the dialogues that its reward is compared with.
        phase: "train" or "eval".
        step: the training step; None where the trainer tells it later, or nothing is trained.
        dealt: the training step by the games dealt before it, where `step` is None and the trainer tells that much.
    """

    row: GameRow
    id: str
    seed: int
    group: str
    phase: str = "train"
    step: int | None = None
    dealt: int | None = None


class RolloutWorker:
    """Plays the dialogues of one process.

    Args:
        chat: the token boundaries; None if the policy plays by text alone.
        policy: who plays, unless `play` is given another.
        partner: the partner, if not the one that the config names.

    Attributes:
        partner: None in self-play and in a game for one.

    Raises:
        SlimError: the config's partner cannot be made.
    """

    def __init__(
        self,
        config: Config,
        chat: Chat | None,
        policy: Player | None = None,
        *,
        partner: Partner | None = None,
    ) -> None:
        self.config, self.chat, self.policy = config, chat, policy
        self.training_reward = make_training_reward(config)
        self.selfplay = config.selfplay
        self.partner = partner if partner is not None else make_partner(config)
        self._settings = learned_settings(config)
        self._kinds: dict[Any, str] = {}  # what the config's partner calls itself, and its name
        if partner is None and self.partner is not None:
            self._kinds[self.partner.identity.get("kind")] = partner_name(config, self.partner)

    @property
    def stopped(self) -> str | None:
        """Why no new game should be started: the partner, or a policy by text, takes no more (its endpoint is down, its budget
        spent). None: start it.
        """
        return next(filter(None, (getattr(player, "stopped", None) for player in self._speakers)), None)

    def keep_spend(self, folder: Path) -> None:
        """Has whoever costs money keep what it spends in the run's folder, where its budget outlives restarts."""
        for player in self._speakers:
            keep = getattr(player, "keep_spend", None)
            if keep is not None:
                keep(folder)

    @property
    def _speakers(self) -> tuple[Any, ...]:
        """Who may call an endpoint: the partner, and a policy by text."""
        return self.partner, self.policy if self.chat is None else None

    def environment(self) -> BaseEnvironment:
        """A fresh environment of the run's game."""
        return make_environment(self.config)

    def spec(
        self,
        row: GameRow,
        scope: str,
        number: int = 0,
        *,
        phase: str = "train",
        step: int | None = None,
        group: str | None = None,
        dealt: int | None = None,
    ) -> DialogueSpec:
        """The dialogue numbered `number` of a row.

        Args:
            scope: goes before its id, and into its seed: what tells the times apart that a row is played.
            group: the trainer's own name of the group; by default scope and row.

        Under self-play the rows of a game's two seats have one dialogue.
        """
        which = row.game_id if self.selfplay else row.name
        seed = seed_of(self.config.seed, scope, which, number)
        return DialogueSpec(row, f"{scope}/{which}/{number}", seed, group or f"{scope}/{which}", phase, step, dealt)

    def ids(self, spec: DialogueSpec) -> list[str]:
        """The ids of an episode's dialogues."""
        return [f"{spec.id}/{seat}" for seat in (0, 1)] if self.selfplay else [spec.id]

    async def play(
        self,
        spec: DialogueSpec,
        *,
        policy: Player | None = None,
        partner: Partner | None = None,
        limits: Limits | None = None,
    ) -> list[Dialogue]:
        """Plays an episode in a new environment.

        Args:
            policy, partner: in place of the worker's.
            limits: narrower ones than the config's (`Limits.within`).

        Returns:
            One dialogue, or under self-play those of seats 0 and 1.

        Raises:
            SlimError: the config or the row cannot be used. Whatever else goes wrong is a failed dialogue.
        """
        policy = policy or self.policy
        if policy is None:
            raise ValueError("the worker was given no policy")
        try:
            dialogues = await self._play(spec, policy, partner or self.partner, limits)
        except SlimError:
            raise
        except Exception as error:
            log.exception("dialogue %s broke", spec.id)
            dialogues = self._broken(spec, policy, error)
        return [self._stamped(dialogue, spec) for dialogue in dialogues]

    async def play_all(
        self,
        specs: Sequence[DialogueSpec],
        *,
        policy: Callable[[DialogueSpec], Player] | None = None,
        max_live: int | None = None,
        done: Callable[[Dialogue], None] | None = None,
    ) -> list[list[Dialogue]]:
        """Plays episodes side by side on one event loop; one list an episode, in their order.

        Args:
            policy: gives each episode its own player.
            max_live: dialogues played at once; all of them by default.
            done: called with each dialogue as it ends, in the order they end.
        """
        gate = asyncio.Semaphore(max_live or len(specs) or 1)
        caller = asyncio.current_task()
        assert caller is not None

        async def play(spec: DialogueSpec) -> list[Dialogue]:
            async with gate:
                # scripted players never wait: the loop would play all games before it ends the caller
                if caller.cancelling():
                    raise asyncio.CancelledError
                dialogues = await self.play(spec, policy=policy(spec) if policy else None)
            for dialogue in dialogues:
                if done:
                    done(dialogue)
            return dialogues

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(play(spec)) for spec in specs]
        except BaseExceptionGroup as group:
            # of one cause, such as a full disk: the others were cancelled, or met it too
            raise group.exceptions[0] from None
        return [task.result() for task in running]

    async def _play(
        self, spec: DialogueSpec, policy: Player, partner: Partner | None, limits: Limits | None
    ) -> list[Dialogue]:
        env, row, limits = self.environment(), spec.row, limits or self.config.limits
        dealt: dict[str, Any] = {
            "game_state": row.game_state,
            "id": spec.id,
            "game_id": row.game_id,
            "seed": spec.seed,
            "price": self.training_reward.told_price(row.game_id),
        }
        chat = self.chat
        if not self.selfplay:
            step = spec.dealt if spec.step is None else spec.step
            if spec.phase == "train" and step is not None and self.config.train.exploring_starts:
                explore = load_object(EXPLORING, "train.exploring_starts", EXPLORING)
                policy = explore(self.config, policy, chat, row, step, spec.seed)
            return [await play_dialogue(env, policy, partner, chat, limits, seat=row.seat, **dealt)]
        return list(await play_selfplay(env, policy, chat, limits, **dealt))

    def _broken(self, spec: DialogueSpec, policy: Player, error: Exception) -> list[Dialogue]:
        row, seats = spec.row, (0, 1) if self.selfplay else (spec.row.seat,)
        return [
            Dialogue(
                id=id,
                game_id=row.game_id,
                seat=seat,
                seed=spec.seed,
                game_state=dict(row.game_state),
                policy=policy.identity,
                partner=self.partner.identity if self.partner else {"kind": "self" if self.selfplay else "none"},
                environment=self.config.environment,
                stop_reason=StopReason.BROKEN,
                failure=f"{type(error).__name__}: {error}",
            )
            for id, seat in zip(self.ids(spec), seats, strict=True)
        ]

    def _stamped(self, dialogue: Dialogue, spec: DialogueSpec) -> Dialogue:
        config = self.config
        dialogue.run, dialogue.arm, dialogue.settings = config.name, config.arm_name, self._settings
        if name := self._kinds.get(dialogue.partner.get("kind")):
            dialogue.partner = {**dialogue.partner, "kind": name}
        dialogue.phase, dialogue.step = spec.phase, spec.step
        dialogue.environment = config.environment
        dialogue.group = f"{spec.group}/{dialogue.seat}" if self.selfplay else spec.group
        return dialogue
