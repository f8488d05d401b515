"""Net reward of simulated askers, whose questions are all answered, at a question cost, in a config's games."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from slim_rl.config import Config
from slim_rl.dialogue.dealing import deal
from slim_rl.environment import environment_class
from slim_rl.errors import ConfigError
from slim_rl.formats import plain
from slim_rl.frontier import MOST, Frontier
from slim_rl.lab.incentives.results import JUDGED
from slim_rl.measured import measured
from slim_rl.statistics import clustered_mean
from slim_rl.statistics.estimate import Estimate


@dataclass(frozen=True, slots=True)
class AskerResult:
    """Net reward of one asker at a question cost.

    Attributes:
        price: question cost, in reward.
        name: choice of questions, and rule of stopping.
        questions: mean number of questions per game.
        net: net reward, with an interval over games.
        choice: net reward minus that of the random asker with the same rule; None for that one.
    """

    price: float
    name: str
    questions: float
    net: Estimate
    choice: Estimate | None = None


def net_rewards(config: Config, num_games: int, prices: Sequence[float], most: int = MOST) -> list[AskerResult]:
    """Returns the net reward of each asker at each question cost.

    The askers are one that never asks and, per asker of the game's frontier, two rules of stopping: after the best fixed number of
    questions, and when the next question's expected gain is below its cost.

    Args:
        most: maximum number of questions per game.

    Raises:
        ConfigError: the game has no frontier.
    """
    game = measured(environment_class(config.environment))
    games = [(row.game_state, row.seat) for row in deal(config, "train", num_games)]
    frontiers = {name: Frontier(*curve) for name, curve in game.frontier(games, most).items()}
    if not frontiers:
        raise ConfigError(
            f"--price needs the classmethod {config.environment}.frontier, which is missing. Implement it, or leave --price out."
        )

    def mean(values: np.ndarray) -> Estimate:
        return clustered_mean(values, np.arange(len(values)))

    def askers(price: float) -> Iterator[AskerResult]:
        never = np.zeros(len(games), dtype=int)
        yield AskerResult(price, "never asks", 0.0, mean(next(iter(frontiers.values())).net(never, price)))
        asked = {
            name: {
                "fixed number of questions": never + frontier.best_number(price),
                "stops by expected gain": frontier.stops(price),
            }
            for name, frontier in frontiers.items()
        }
        for name, frontier in frontiers.items():
            for rule, number in asked[name].items():
                net, choice = frontier.net(number, price), None
                if name != JUDGED and JUDGED in frontiers:
                    choice = mean(net - frontiers[JUDGED].net(asked[JUDGED][rule], price))
                yield AskerResult(price, f"{name}, {rule}", float(number.mean()), mean(net), choice)

    return [each for price in prices for each in askers(price)]


def table(askers: Sequence[AskerResult], title: str) -> Table:
    """Returns the results as a table of 80 columns."""
    caption = "cost: per question, in reward; questions: per game; ±: 95% intervals over games"
    out = Table(title=title, caption=caption, box=None, pad_edge=False)
    for heading in ("cost", "asker", "questions", "net reward"):
        out.add_column(heading, justify="left" if heading == "asker" else "right", no_wrap=True)
    for before, each in zip([None, *askers], askers, strict=False):
        first = before is None or before.price != each.price
        out.add_row(
            f"{each.price:g}" if first else "",
            each.name,
            f"{each.questions:.2f}",
            _with_half(each.net),
        )
        if each.choice is not None:
            out.add_row("", "[dim]  over random[/dim]", "", f"[dim]{_with_half(each.choice, signed=True)}[/dim]")
    return out


def _with_half(estimate: Estimate, signed: bool = False) -> str:
    return f"{plain(estimate.value, signed=signed)} ± {(estimate.high - estimate.low) / 2:.3f}"
