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
from slim_rl.frontier import MOST
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
    """

    price: float
    name: str
    questions: float
    net: Estimate


def priced(config: Config, num_games: int, prices: Sequence[float]) -> list[PricedAsker]:
    """At each price: who never asks; and of each asker of the game's frontier, the best that one number of questions for all games can
    do, and stopping once the next question is expected to add less than its price.

    Raises:
        ConfigError: the game has no frontier.
    """
    game = measured(environment_class(config.environment))
    games = [(row.game_state, row.seat) for row in deal(config, "train", num_games)]
    frontiers = game.frontier(games, MOST)
    if not frontiers:
        raise ConfigError(f"{config.environment} has no frontier, so what asking is worth at a price is not known.")

    def asker(price: float, name: str, number: np.ndarray, net: np.ndarray) -> PricedAsker:
        return PricedAsker(price, name, float(number.mean()), clustered_mean(net, np.arange(len(net))))

    def askers(price: float) -> Iterator[PricedAsker]:
        never = np.zeros(len(games), dtype=int)
        yield asker(price, "never asks", never, next(iter(frontiers.values())).net(never, price))
        for name, frontier in frontiers.items():
            best, stops = never + frontier.best_number(price), frontier.stops(price)
            yield asker(price, f"{name}, one number of questions for all", best, frontier.net(best, price))
            yield asker(price, f"{name}, stops by what it knows", stops, frontier.net(stops, price))

    return [each for price in prices for each in askers(price)]


def table(askers: Sequence[PricedAsker], title: str) -> Table:
    """For a terminal of 80 columns."""
    out = Table(
        title=title, caption="net: reward less the price; ±: 95% intervals over games", box=None, pad_edge=False
    )
    for heading in ("price", "asker", "questions", "net"):
        out.add_column(heading, justify="left" if heading == "asker" else "right", no_wrap=True)
    for before, each in zip([None, *askers], askers, strict=False):
        first = before is None or before.price != each.price
        half = (each.net.high - each.net.low) / 2
        out.add_row(
            f"{each.price:g}" if first else "",
            each.name,
            f"{each.questions:.2f}",
            f"{plain(each.net.value)} ± {half:.3f}",
        )
    return out
