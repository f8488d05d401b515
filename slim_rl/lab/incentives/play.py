"""Scripted players on a config's own games: all of them play the same games with the same draws, so that differences are paired by
game.

Where the partner is behind an endpoint, recorded, or the policy itself, the game's own scripted partner stands in for it, which costs
nothing. A game without scripted players is judged by its `frontier`: ideal askers on paper.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slim_rl.config import PARTNERS, SELF, Config
from slim_rl.dialogue.dealing import deal
from slim_rl.dialogue.factory import costs_money
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.rows import GameRow
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import BaseEnvironment, environment_class
from slim_rl.errors import ConfigError, SlimError
from slim_rl.lab.frontier import Frontier
from slim_rl.lab.incentives.found import JUDGED, Incentives, PlayerIncentive
from slim_rl.measured import ScriptedPlayer, measured

if TYPE_CHECKING:
    from slim_rl.statistics.estimate import Estimate

QUESTIONS = (1, 2, 4, 6, 8)
GAMES = 500

Floats = NDArray[np.float64]


def measure(
    config: Config,
    num_games: int = GAMES,
    questions: Sequence[int] = QUESTIONS,
    *,
    everyone: bool = True,
    only: str | None = None,
    live: bool = False,
) -> Incentives:
    """Plays every scripted player of the config's game on its first `num_games` training games.

    Args:
        everyone: cheats and further curves too, and what was told; else what `Incentives.sentence` needs.
        only: the players of this curve alone.
        live: play the config's own partner even where it is behind an endpoint.

    Raises:
        ConfigError: the game has one seat, or nothing to judge it by.
        SlimError: the partner takes no more games: its endpoint is down, or its budget is spent.
    """
    game = environment_class(config.environment)
    if game.seats != 2:
        raise ConfigError(f"{config.environment} is a game for one: it has no partner to ask.")
    config, partner = (config, config.partner.kind) if live else _with_stand_in(config)
    rows = list(deal(config, "train", num_games))
    found = measured(game).scripted_players(config.game, questions)
    players = [one for one in found if one.curve == only or (only is None and (everyone or _is_judged(one)))]
    if not found:
        return Incentives(_on_paper(game, rows, max(questions)), "ideal askers, who are told and granted everything")
    worker = RolloutWorker(config, None)
    played: dict[str, list[Dialogue]] = {}
    for player in players:
        specs = [worker.spec(row, "incentives") for row in rows]  # the same draws for every player
        worker.policy = player.player
        played[player.name] = [dialogue for (dialogue,) in asyncio.run(worker.play_all(specs))]
        if worker.stopped:
            raise SlimError(worker.stopped)
    return Incentives(tuple(_lines(players, played, everyone)), partner)


def _with_stand_in(config: Config) -> tuple[Config, str]:
    """The config with a scripted partner, and who that is."""
    kind = config.partner.kind
    if kind not in (*PARTNERS, SELF) and not costs_money(config):
        return config, kind
    scripted = next((name for name in environment_class(config.environment).partners if name not in PARTNERS), None)
    if scripted is None:
        raise ConfigError(f"{config.environment} has no scripted partner to stand in for {kind}.")
    return config.changed(partner={"kind": scripted, "args": {}}), f"{scripted}, standing in for {kind}"


def _is_judged(player: ScriptedPlayer) -> bool:
    return player.curve == JUDGED or (not player.questions and not player.against)


def _lines(
    players: Sequence[ScriptedPlayer], played: dict[str, list[Dialogue]], everyone: bool
) -> Iterable[PlayerIncentive]:
    rewards = {name: _rewards(dialogues) for name, dialogues in played.items()}
    before: dict[str, str] = {}  # the player before, on each curve
    for player in players:
        dialogues = played[player.name]
        whole = [dialogue for dialogue in dialogues if not dialogue.failed]
        base = player.against or before.get(player.curve, players[0].name)
        if player.curve:
            before[player.curve] = player.name
        gain = None if player is players[0] else _mean(rewards[player.name] - rewards[base])
        yield PlayerIncentive(
            *(player.name, player.questions, player.curve, player.against),
            games=len(dialogues),
            failed=len(dialogues) - len(whole),
            reward=_mean_reward(rewards[player.name]),
            agreed=float(np.mean([one.stop_reason is StopReason.AGREED for one in whole])) if whole else math.nan,
            gain=gain,
            told=_told(whole) if everyone else None,
        )


def _rewards(dialogues: Sequence[Dialogue]) -> Floats:
    return np.array([math.nan if dialogue.reward is None else dialogue.reward for dialogue in dialogues])


def _mean(values: Floats) -> Estimate:
    from slim_rl.statistics import clustered_mean  # pandas and SciPy, without which a start says what it has kept

    return clustered_mean(values, np.arange(len(values)))


def _mean_reward(values: Floats) -> Estimate:
    """Its interval ends where rewards do, at 0 and 1, in a game whose rewards do."""
    found, known = _mean(values), values[np.isfinite(values)]
    if not len(known) or known.min() < 0 or known.max() > 1:
        return found
    low, high = np.clip([found.low, found.high], 0.0, 1.0).tolist()
    return replace(found, low=low, high=high)


def _told(dialogues: Sequence[Dialogue]) -> float:
    """What was asked for and told, a dialogue."""
    for dialogue in dialogues:
        annotate(dialogue)
    return (
        float(np.mean([float(measures(dialogue)["informative_pairs"]) for dialogue in dialogues])) if dialogues else 0.0
    )


def _on_paper(game: type[BaseEnvironment], rows: Sequence[GameRow], most: int) -> tuple[PlayerIncentive, ...]:
    """The lines of a game's frontier: its first strategy from 0 questions on, then the others. Without one, its references."""
    games = [(row.game_state, row.seat) for row in rows]
    curves = {name: Frontier(*curve) for name, curve in measured(game).frontier(games, most).items()}
    lines: list[PlayerIncentive] = []
    if not curves:
        for reference in measured(game).references(games).values():
            rewards = np.asarray(reference["rewards"], dtype=float)
            lines.append(
                PlayerIncentive(reference["about"], 0, "", "", len(rewards), 0, _mean_reward(rewards), math.nan)
            )
    if not curves and not lines:
        raise ConfigError(
            f"{game.__name__} has nothing to judge a config by: give it a classmethod scripted_players or frontier."
        )
    for strategy, curve in curves.items():
        table = curve.rewards
        for k in range(table.shape[1]):
            if k or not lines:
                name = f"{k} {strategy} question{'' if k == 1 else 's'}" if k else "no question"
                gain = _mean(table[:, k] - table[:, k - 1]) if k else None
                lines.append(
                    PlayerIncentive(name, k, strategy, "", len(table), 0, _mean_reward(table[:, k]), math.nan, gain)
                )
    return tuple(lines)
