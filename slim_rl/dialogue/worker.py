"""Rollout worker: built once per process from a `Config`, it turns rows of a games file into dialogues.

    worker = RolloutWorker(config, chat, policy)
    dialogues = await worker.play(worker.spec(row, "eval"))

Invariants:
    Every dialogue, in training and evaluation, is named, seeded, grouped and stamped here, before it is played.
    Id, seed and group of a dialogue follow from its row, its scope (a training step, or "eval") and its number among the dialogues
    of that row, so that any process plays the same dialogue again. Its partner follows from its game and the run's seed.
    An exception in one game is a failed dialogue (`BROKEN`) and does not affect other games.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slim_rl.config import Config, Limits
from slim_rl.config.trainers import learned_settings
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.loop import Game
from slim_rl.dialogue.players import Partner, Player, make_partners
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.environment import BaseEnvironment, make_environment
from slim_rl.errors import SlimError
from slim_rl.seeds import drawn, seed_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DialogueSpec:
    """Specification of one dialogue to play; under self-play of one per seat.

    Attributes:
        id: name of the dialogue in the run; under self-play the seats' ids end in ``/0`` and ``/1``.
        seed: seed of all random draws in it.
        group: name of the group whose rewards are compared.
        phase: "train" or "eval".
        step: training step; None if the trainer sets it later, or nothing is trained.
    """

    row: GameRow
    id: str
    seed: int
    group: str
    phase: str = "train"
    step: int | None = None


class RolloutWorker:
    """Player of all dialogues of one process.

    Args:
        chat: token boundaries; None if the policy plays by text alone.
        policy: default policy of `play`.
        partner: partner in place of the config's; None: the config's.

    Raises:
        SlimError: the config's partner cannot be made.
    """

    def __init__(
        self, config: Config, chat: Chat | None, policy: Player | None = None, *, partner: Partner | None = None
    ) -> None:
        self.config, self.chat, self.policy = config, chat, policy
        self.training_reward = make_training_reward(config)
        self.selfplay = config.selfplay
        self._partners = {"": partner} if partner else make_partners(config)  # by the names that logs have
        self._shares = {"": 1.0} if partner else config.shares
        self._settings = learned_settings(config)

    @property
    def stopped(self) -> str | None:
        """Returns why no new game should start; None if one may.

        The partner, or a policy by text, may take no more games: its endpoint is down, or its budget spent.
        """
        return next(filter(None, (player.stopped for player in self._speakers)), None)

    def keep_spend(self, folder: Path) -> None:
        """Makes players that cost money keep their spending in the run's folder, so that budgets outlive restarts."""
        for player in self._speakers:
            player.keep_spend(folder)

    @property
    def _speakers(self) -> list[Player]:
        """Returns the players that may call an endpoint: the partners, and a policy by text."""
        players = (*self._partners.values(), None if self.chat else self.policy)
        return [player for player in players if player is not None]

    def member_of(self, spec: DialogueSpec) -> str:
        """Returns the name of a dialogue's partner; of several, one is drawn for each game by their shares."""
        return drawn(self._shares, self.config.seed, "partner", spec.row.game_id)

    def partner_of(self, spec: DialogueSpec) -> Partner | None:
        """Returns the partner of a dialogue; None in self-play and in games for one."""
        return self._partners[self.member_of(spec)]

    def environment(self) -> BaseEnvironment:
        """Returns a new environment of the run's game."""
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
    ) -> DialogueSpec:
        """Returns the specification of dialogue `number` of a row. Under self-play the rows of a game's two seats share one.

        Args:
            scope: prefix of the id and part of the seed; it distinguishes the times that a row is played.
            group: the trainer's name of the group; None: scope and row.
        """
        which = row.game_id if self.selfplay else row.name
        seed = seed_of(self.config.seed, scope, which, number)
        return DialogueSpec(row, f"{scope}/{which}/{number}", seed, group or f"{scope}/{which}", phase, step)

    def ids(self, spec: DialogueSpec) -> list[str]:
        """Returns the ids of the dialogues of a specification."""
        return [f"{spec.id}/{seat}" for seat in (0, 1)] if self.selfplay else [spec.id]

    async def play(
        self, spec: DialogueSpec, *, policy: Player | None = None, limits: Limits | None = None
    ) -> list[Dialogue]:
        """Plays one dialogue, or both of self-play, in a new environment.

        Args:
            policy: policy in place of the worker's; None: the worker's.
            limits: limits in place of the config's, narrower (`Limits.within`); None: the config's.

        Returns:
            One dialogue; under self-play those of seats 0 and 1.

        Raises:
            SlimError: the config or the row cannot be used. Any other exception is a failed dialogue.
        """
        policy, name, partner = policy or self.policy, self.member_of(spec), self.partner_of(spec)
        if policy is None:
            raise ValueError("play needs a policy: the worker has none")
        dialogues = self._records(spec, policy, partner)
        try:
            limits = limits or self.config.limits
            await Game(self.environment(), dialogues, policy, partner, self.chat, limits).play()
        except SlimError:
            raise
        except Exception as error:
            log.exception("dialogue %s broke", spec.id)
            for dialogue in dialogues:
                dialogue.stop_reason, dialogue.failure = StopReason.BROKEN, f"{type(error).__name__}: {error}"
                dialogue.reward = None  # the game may break after its end, when it is closed
        for dialogue in dialogues:
            dialogue.partner = {**dialogue.partner, **({"kind": name} if name else {})}
        return dialogues

    async def play_all(
        self,
        specs: Sequence[DialogueSpec],
        *,
        policy: Callable[[DialogueSpec], Player] | None = None,
        max_live: int | None = None,
        done: Callable[[Dialogue], None] | None = None,
    ) -> list[list[Dialogue]]:
        """Plays dialogues concurrently on one event loop; returns one list per specification, in their order.

        Args:
            policy: function from a specification to its player; None: the worker's policy.
            max_live: maximum of dialogues played at once; None: all of them.
            done: function called with each dialogue when it ends; None: no call.
        """
        gate = asyncio.Semaphore(max_live or len(specs) or 1)
        caller = asyncio.current_task()
        assert caller is not None

        async def play(spec: DialogueSpec) -> list[Dialogue]:
            async with gate:
                # scripted players never wait: without this the loop would play all games before it cancels the caller
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
            # one cause, such as a full disk: the others were cancelled, or met it too
            raise group.exceptions[0] from None
        return [task.result() for task in running]

    def _records(self, spec: DialogueSpec, policy: Player, partner: Partner | None) -> list[Dialogue]:
        """Returns the records of a specification's dialogues, which hold all that is known before they are played."""
        config, row = self.config, spec.row
        return [
            Dialogue(
                id=id,
                game_id=row.game_id,
                seat=seat,
                seed=spec.seed,
                game_state=dict(row.game_state),
                policy=policy.identity,
                partner=partner.identity if partner else {},
                environment=config.environment,
                run=config.name,
                arm=config.arm_name,
                step=spec.step,
                phase=spec.phase,
                group=f"{spec.group}/{seat}" if self.selfplay else spec.group,
                price=self.training_reward.visible_price(row.game_id),
                settings=self._settings,
            )
            for id, seat in zip(self.ids(spec), (0, 1) if self.selfplay else (row.seat,), strict=True)
        ]
