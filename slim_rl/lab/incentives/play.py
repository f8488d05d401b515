"""Scripted players on a config's games.

All play the same games with the same random draws, so that differences are paired by game. A scripted partner of the game replaces
one that is behind an endpoint, recorded, or the policy itself, and costs nothing. A game without scripted players is judged by the
simulated askers of its `frontier`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slim_rl.config import Config
from slim_rl.dialogue.games_file import GameRow, deal
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.players import against
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.worker import DialogueSpec, RolloutWorker
from slim_rl.environment import BaseEnvironment, environment_class
from slim_rl.errors import ConfigError, SlimError
from slim_rl.lab.frontier import Frontier
from slim_rl.lab.incentives.results import JUDGED, Incentives, PlayerResult
from slim_rl.measured import ScriptedPlayer, measured
from slim_rl.statistics import Estimate, clustered_mean

QUESTIONS = (1, 2, 4, 6, 8)
GAMES = 500

Floats = NDArray[np.float64]


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
        ConfigError: the game has one seat, or neither scripted players nor a frontier nor references.
        SlimError: the partner's endpoint is down, or its budget is spent.
    """
    game = environment_class(config.environment)
    if game.seats != 2:
        raise ConfigError(f"{config.environment} has one seat, so there is no partner to ask. Choose a game with two.")
    config, partner = (config, config.opposite.name) if live else _with_scripted_partners(config)
    rows = list(deal(config, "train", num_games))
    scripted = measured(game).scripted_players(config.game, questions)
    players = [one for one in scripted if everyone or _is_judged(one)]
    if not scripted:
        return Incentives(_simulated(game, rows, max(questions)), "none (simulated askers)")
    worker = RolloutWorker(config, None)
    specs = [worker.spec(row, "incentives") for row in rows]  # the same draws for every player

    async def all_played() -> list[list[list[Dialogue]]]:
        return await asyncio.gather(*(worker.play_all(specs, policy=partial(_same, each.player)) for each in players))

    played = {
        each.name: [one for (one,) in dialogues]
        for each, dialogues in zip(players, asyncio.run(all_played()), strict=True)
    }
    if worker.stopped:
        raise SlimError(worker.stopped)
    return Incentives(tuple(_lines(players, played, everyone)), partner)


def _same(player: Any, spec: DialogueSpec) -> Any:
    return player


def _with_scripted_partners(config: Config) -> tuple[Config, str]:
    """Returns the config with scripted partners, and their description."""
    played, names = {name: _scripted(member) for name, member in config.members.items()}, []
    for name, one in played.items():
        about = (
            name
            if one is config or config.members[name].opposite == one.opposite
            else f"{one.opposite.name} (in place of {name})"
        )
        names.append(f"{about} {config.shares[name]:.0%}" if config.partner.mixture else about)
    if not config.partner.mixture:
        return played[config.opposite.name], names[0]
    mixture = {
        name: {"share": config.shares[name], "kind": one.opposite.name, "args": one.partner.args}
        for name, one in played.items()
    }
    return config.changed(partner={"args": {}, "mixture": mixture}), ", ".join(names)


def _scripted(config: Config) -> Config:
    """Returns the config of one partner, with a scripted one in place of any other."""
    if config.opposite.scripted:
        return config
    for kind in environment_class(config.environment).partners:
        if config.changed(partner={"kind": kind}).opposite.scripted:
            return against(config, kind)
    raise ConfigError(
        f"{config.environment} has no scripted partner to replace partner.kind={config.opposite.name}. Use --live to play with that one."
    )


def _is_judged(player: ScriptedPlayer) -> bool:
    return player.curve == JUDGED or (not player.questions and not player.against)


def _lines(
    players: Sequence[ScriptedPlayer], played: dict[str, list[Dialogue]], everyone: bool
) -> Iterable[PlayerResult]:
    rewards = {name: _rewards(dialogues) for name, dialogues in played.items()}
    before: dict[str, str] = {}  # previous player on each curve
    for player in players:
        dialogues = played[player.name]
        completed = [dialogue for dialogue in dialogues if not dialogue.failed]
        base = player.against or before.get(player.curve, players[0].name)
        if player.curve:
            before[player.curve] = player.name
        gain = None if player is players[0] else _mean(rewards[player.name] - rewards[base])
        yield PlayerResult(
            *(player.name, player.questions, player.curve, player.against),
            games=len(dialogues),
            failed=len(dialogues) - len(completed),
            reward=_mean_reward(rewards[player.name]),
            agreed=float(np.mean([one.stop_reason is StopReason.AGREED for one in completed]))
            if completed
            else math.nan,
            gain=gain,
            learned=_learned(completed) if everyone else None,
        )


def _rewards(dialogues: Sequence[Dialogue]) -> Floats:
    return np.array([math.nan if dialogue.reward is None else dialogue.reward for dialogue in dialogues])


def _mean(values: Floats) -> Estimate:
    return clustered_mean(values, np.arange(len(values)))


def _mean_reward(values: Floats) -> Estimate:
    """Returns the mean, its interval cut to [0, 1] if all rewards lie in it."""
    mean, known = _mean(values), values[np.isfinite(values)]
    if not len(known) or known.min() < 0 or known.max() > 1:
        return mean
    low, high = np.clip([mean.low, mean.high], 0.0, 1.0).tolist()
    return replace(mean, low=low, high=high)


def _learned(dialogues: Sequence[Dialogue]) -> float:
    """Returns the informative pairs per dialogue."""
    for dialogue in dialogues:
        annotate(dialogue)
    return (
        float(np.mean([float(measures(dialogue)["informative_pairs"]) for dialogue in dialogues])) if dialogues else 0.0
    )


def _simulated(game: type[BaseEnvironment], rows: Sequence[GameRow], most: int) -> tuple[PlayerResult, ...]:
    """Returns results from a game's frontier, the first strategy from 0 questions; without a frontier from its references."""
    games = [(row.game_state, row.seat) for row in rows]
    curves = {name: Frontier(*curve) for name, curve in measured(game).frontier(games, most).items()}
    lines: list[PlayerResult] = []
    if not curves:
        for reference in measured(game).references(games).values():
            rewards = np.asarray(reference["rewards"], dtype=float)
            lines.append(PlayerResult(reference["about"], 0, "", "", len(rewards), 0, _mean_reward(rewards), math.nan))
    if not curves and not lines:
        raise ConfigError(
            f"{game.__name__} has no scripted players, frontier or references. Implement scripted_players or frontier in its instrument."
        )
    for strategy, curve in curves.items():
        table = curve.rewards
        for k in range(table.shape[1]):
            if k or not lines:
                name = f"{k} {strategy} question{'' if k == 1 else 's'}" if k else "no question"
                gain = _mean(table[:, k] - table[:, k - 1]) if k else None
                lines.append(
                    PlayerResult(name, k, strategy, "", len(table), 0, _mean_reward(table[:, k]), math.nan, gain)
                )
    return tuple(lines)
