"""Check, before training, whether asking raises the reward under a config.

    asking is rewarded if one random question gains reward, and no player without questions gains more than one honest solo plan

A policy that rarely asks learns to ask only if its first question raises the reward. If trial and error with plans, chance or a cheat
reach the same reward, it learns those instead. `measure` plays scripted players, and `Incentives` judges their rewards.

All play the same games with the same random draws, so that differences are paired by game. A scripted partner of the game replaces
those that are behind an endpoint, recorded, or the policy itself, and costs nothing. A game without scripted players is judged by the
simulated askers of its `frontier`.
"""

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slim_rl.analysis.tables import Row, Table
from slim_rl.config import Config
from slim_rl.dialogue.games_file import GameRow, deal, read_rows, seats_of
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.players import against
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import BaseEnvironment, environment_class
from slim_rl.errors import ConfigError, SlimError
from slim_rl.formats import DASH, interval, known, plain
from slim_rl.lab.frontier import Frontier
from slim_rl.measured import ScriptedPlayer, measured
from slim_rl.statistics import Estimate, clustered_mean, mean_of_games

QUESTIONS = (1, 2, 4, 6, 8)
GAMES = 500
JUDGED = "random"  # curve that decides whether asking raises the reward
TOLERANCE = 0.03  # largest gain in reward without questions, over an honest solo plan, that is not a way around asking

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlayerResult:
    """Result of one player; estimates are over games.

    Attributes:
        name, questions, curve, against: as in `ScriptedPlayer`.
        failed: number of failed dialogues, which all other numbers leave out.
        reward: mean reward.
        agreed: share of games that ended in agreement.
        gain: reward minus that of the previous player on its curve; for a cheat, minus that of `against`; for others, minus that of
            the honest player without questions. None for the latter.
        learned: pairs (or other objects of questions) per game that it asked about and was answered; None if not counted.
    """

    name: str
    questions: int
    curve: str
    against: str
    failed: int
    reward: Estimate
    agreed: float
    gain: Estimate | None = None
    learned: float | None = None


@dataclass(frozen=True, slots=True)
class Incentives:
    """Rewards of all players under a config.

    Attributes:
        lines: one result per player; the first is the honest player without questions.
        partner: description of the partner.
    """

    lines: tuple[PlayerResult, ...]
    partner: str

    @property
    def curve(self) -> list[PlayerResult]:
        """Players of the deciding curve, by number of questions, from 0."""
        judged = JUDGED if any(line.curve == JUDGED and line.questions for line in self.lines) else self.lines[0].curve
        askers = [line for line in self.lines[1:] if line.curve == judged]
        return [self.lines[0], *sorted(askers, key=lambda line: line.questions)]

    @property
    def first_gain(self) -> Estimate | None:
        """Gain in reward of the first question; None if no game measures it."""
        gain = self.curve[1].gain if len(self.curve) > 1 else None
        return gain if gain is not None and gain.n else None

    @property
    def best_without(self) -> PlayerResult:
        """Best player without questions, among those with a significant gain (else luck in win-or-lose games would decide)."""
        better = [line for line in self.lines[1:] if not line.questions and line.gain is not None and line.gain.low > 0]
        return max((self.lines[0], *better), key=lambda line: line.reward.value)

    @property
    def rewards_asking(self) -> bool:
        """True if the first question raises the reward, and no player without questions gains more than `TOLERANCE`."""
        shortcut = self.best_without.reward.value - self.lines[0].reward.value
        return bool(self.first_gain is not None and self.first_gain.low > 0 and shortcut <= TOLERANCE)

    @property
    def sentence(self) -> str:
        """Judgement in one sentence."""
        if self.first_gain is None:
            failed = any(line.failed for line in self.lines)
            reason = "no game was played to its end" if failed else "none of the players asks a question"
            return f"The gain from asking is unknown: {reason}."
        solo, last = self.lines[0].reward.value, self.curve[-1]
        gain, shortcut = last.reward.value - solo, max(0.0, self.best_without.reward.value - solo)
        if self.first_gain.low <= 0:
            judgement = "It is not shown that asking raises the reward"
        else:
            judgement = "Asking raises the reward" + ("" if shortcut <= TOLERANCE else ", but is not needed")
        name = f" ({self.best_without.name}: {plain(self.best_without.reward.value)})" if shortcut > TOLERANCE else ""
        return (
            f"{judgement}: one {last.curve} question changes it by {plain(self.first_gain.value, signed=True)} (95% interval "
            f"{interval(self.first_gain.low, self.first_gain.high)}), {last.questions} by {plain(gain, signed=True)} from {plain(solo)}; "
            f"players without questions gain {plain(shortcut, signed=True)}{name}."
        )

    def table(self, title: str) -> Table:
        """Returns all results as a table."""
        agreed = any(line.agreed > 0 for line in self.lines)  # no column in a game without proposals
        rows: list[Row] = [
            {
                "player": line.name
                + (f", over {line.against}" if line.against else "")
                + (f" ({line.failed} failed)" if line.failed else ""),
                "reward": _with_error(line.reward),
                **({"agreed": f"{line.agreed:.0%}" if known(line.agreed) else DASH} if agreed else {}),
                "learned": DASH if line.learned is None else f"{line.learned:.1f}",
                "gain": _with_error(line.gain, signed=True) if line.gain else "",
            }
            for line in self.lines
        ]
        caption = "±: 95% intervals over games; learned: scores per game; gain: over the player before on the curve, or the one named."
        return Table(f"{title}. {caption}", rows)


def _with_error(estimate: Estimate, signed: bool = False) -> str:
    """Returns, for example, '+0.038 ± 0.016'."""
    half = max(estimate.high - estimate.value, estimate.value - estimate.low)  # one end may be cut at 1
    return f"{estimate.value:{'+' if signed else ''}.3f} ± {half:.3f}".replace("-", "−")


# -- play ----------------------------------------------------------------------------------------------------------------


def measure(
    config: Config,
    num_games: int = GAMES,
    questions: Sequence[int] = QUESTIONS,
    *,
    everyone: bool = True,
    live: bool = False,
) -> Incentives:
    """Plays the scripted players of the config's game on its first `num_games` training games.

    Args:
        questions: numbers of questions of the askers.
        everyone: whether to play cheats and further curves, and to count learned pairs; else only what `Incentives.sentence` needs.
        live: whether to play the config's partner even if it is behind an endpoint.

    Raises:
        ConfigError: the game has one seat, or neither scripted players nor a frontier.
        SlimError: the partner's endpoint is down, or its budget is spent.
    """
    game = environment_class(config.environment)
    if game.seats != 2:
        raise ConfigError(f"{config.environment} has one seat, so there is no partner to ask. Choose a game with two.")
    config, partner = (config, config.opposite.name) if live else _with_scripted_partners(config)
    file = config.data.train
    own = [row for row in read_rows(file, seats=seats_of(config)) if row.spec is None] if file.exists() else []
    rows = own[:num_games] or list(deal(config, "train", num_games))
    scripted = measured(game).scripted_players(config.game, questions)
    judged = [one for one in scripted if one.curve == JUDGED or not (one.questions or one.against)]
    players = scripted if everyone else judged
    if not scripted:
        return Incentives(_simulated(game, rows, max(questions)), "none (simulated askers)")
    worker = RolloutWorker(config, None)
    specs = [worker.spec(row, "incentives") for row in rows]  # the same draws for every player

    async def played_by(player: ScriptedPlayer) -> list[Dialogue]:
        return [one for (one,) in await worker.play_all(specs, policy=lambda _: player.player)]

    async def all_played() -> list[list[Dialogue]]:
        return await asyncio.gather(*map(played_by, players))

    played = dict(zip((each.name for each in players), asyncio.run(all_played()), strict=True))
    if worker.stopped and any(each.failed for some in played.values() for each in some):
        raise SlimError(worker.stopped)
    return Incentives(tuple(_lines(players, played, everyone)), partner)


def _with_scripted_partners(config: Config) -> tuple[Config, str]:
    """Returns the config with its scripted partners alone, or with the game's first one in their place, and a description."""
    scripted = {name for name, member in config.members.items() if member.opposite.scripted and config.shares[name]}
    others = ", ".join(name for name, share in config.shares.items() if share and name not in scripted)
    if not scripted:
        for kind in environment_class(config.environment).partners:
            if config.changed(partner={"kind": kind}).opposite.scripted:
                return against(config, kind), f"{kind} (in place of {others})"
        raise ConfigError(
            f"{config.environment} has no scripted partner in place of {others}. Use --live to play with that."
        )
    if mixture := config.partner.mixture:
        config = config.changed(partner={"mixture": {name: one for name, one in mixture.items() if name in scripted}})
    names = ", ".join(f"{name} {share:.0%}" if mixture else name for name, share in config.shares.items())
    return config, f"{names} (without {others})" if others else names


def _lines(
    players: Sequence[ScriptedPlayer], played: dict[str, list[Dialogue]], everyone: bool
) -> Iterable[PlayerResult]:
    rewards = {name: np.array([one.reward for one in those], dtype=float) for name, those in played.items()}
    before: dict[str, str] = {}  # previous player on each curve
    for player in players:
        dialogues = played[player.name]
        completed = [dialogue for dialogue in dialogues if not dialogue.failed]
        base = player.against or before.get(player.curve, players[0].name)
        if player.curve:
            before[player.curve] = player.name
        gain = None if player is players[0] else _mean(rewards[player.name] - rewards[base])
        agreed = [float(one.stop_reason is StopReason.AGREED) for one in completed]
        yield PlayerResult(
            *(player.name, player.questions, player.curve, player.against),
            failed=len(dialogues) - len(completed),
            reward=mean_of_games(rewards[player.name]),
            agreed=float(np.mean(agreed or [math.nan])),
            gain=gain,
            learned=_learned(completed) if everyone else None,
        )


def _mean(values: Floats) -> Estimate:
    return clustered_mean(values, np.arange(len(values)))


def _learned(dialogues: Sequence[Dialogue]) -> float:
    """Returns the informative pairs per dialogue."""
    for dialogue in dialogues:
        annotate(dialogue)
    pairs = [float(measures(dialogue)["informative_pairs"]) for dialogue in dialogues]
    return float(np.mean(pairs or [0.0]))


def _simulated(game: type[BaseEnvironment], rows: Sequence[GameRow], most: int) -> tuple[PlayerResult, ...]:
    """Returns results from a game's frontier, the first strategy from 0 questions."""
    games = [(row.game_state, row.seat) for row in rows]
    curves = {name: Frontier(*curve) for name, curve in measured(game).frontier(games, most).items()}
    if not curves:
        raise ConfigError(
            f"{game.__name__} has neither scripted players nor a frontier. Implement scripted_players or frontier in its instrument."
        )
    lines: list[PlayerResult] = []
    for strategy, curve in curves.items():
        table = curve.rewards
        for k in range(table.shape[1]):
            if k or not lines:
                name = f"{k} {strategy} question{'' if k == 1 else 's'}" if k else "no question"
                gain = _mean(table[:, k] - table[:, k - 1]) if k else None
                lines.append(PlayerResult(name, k, strategy, "", 0, mean_of_games(table[:, k]), math.nan, gain))
    return tuple(lines)
