"""What asking is worth at a price a question: askers on paper, who are told all that they ask for, on a config's own games."""

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
from slim_rl.lab.frontier import MOST, Frontier
from slim_rl.lab.incentives.found import JUDGED
from slim_rl.measured import measured
from slim_rl.statistics import clustered_mean
from slim_rl.statistics.estimate import Estimate


@dataclass(frozen=True, slots=True)
class PricedAsker:
    """What one asker earns at a price.

    Attributes:
        price: of a question, in reward.
        name: what it does.
        questions: how many it asks, on average.
        net: its reward less what its questions cost; the interval is over games.
        choice: what it earns above the asker that asks at random and stops by the same rule; None for that one.
    """

    price: float
    name: str
    questions: float
    net: Estimate
    choice: Estimate | None = None


def priced(config: Config, num_games: int, prices: Sequence[float], most: int = MOST) -> list[PricedAsker]:
    """At each price: who never asks; and of each asker of the game's frontier, the best that one number of questions for all games can
    do, and stopping once the next question is expected to add less than its price. None asks more than `most`.

    Raises:
        ConfigError: the game has no frontier.
    """
    game = measured(environment_class(config.environment))
    games = [(row.game_state, row.seat) for row in deal(config, "train", num_games)]
    frontiers = {name: Frontier(*curve) for name, curve in game.frontier(games, most).items()}
    if not frontiers:
        raise ConfigError(f"{config.environment} has no frontier, so what asking is worth at a price is not known.")

    def mean(values: np.ndarray) -> Estimate:
        return clustered_mean(values, np.arange(len(values)))

    def askers(price: float) -> Iterator[PricedAsker]:
        never = np.zeros(len(games), dtype=int)
        yield PricedAsker(price, "never asks", 0.0, mean(next(iter(frontiers.values())).net(never, price)))
        asked = {
            name: {
                "one number of questions for all": never + frontier.best_number(price),
                "stops by what it knows": frontier.stops(price),
            }
            for name, frontier in frontiers.items()
        }
        for name, frontier in frontiers.items():
            for rule, number in asked[name].items():
                net, choice = frontier.net(number, price), None
                if name != JUDGED and JUDGED in frontiers:
                    choice = mean(net - frontiers[JUDGED].net(asked[JUDGED][rule], price))
                yield PricedAsker(price, f"{name}, {rule}", float(number.mean()), mean(net), choice)

    return [each for price in prices for each in askers(price)]


def table(askers: Sequence[PricedAsker], title: str) -> Table:
    """For a terminal of 80 columns."""
    caption = "net: reward less the price; ±: 95% intervals over games"
    out = Table(title=title, caption=caption, box=None, pad_edge=False)
    for heading in ("price", "asker", "questions", "net"):
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
