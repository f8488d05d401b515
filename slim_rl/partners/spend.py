"""Money: what calls cost, a run's counters, and its budget.

    a budget is the run's: what earlier starts and other processes of the run have spent counts
    what a call may cost at most is set aside before it is sent, and given back when it has its answer or its fault

So calls in flight cannot overshoot a budget together. A call that does not fit beside the others waits for them; when none is in
flight, one may go as long as anything is left: a budget is overshot by one reply at most.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from slim_rl.config import OpenAIConfig, Price
from slim_rl.config.hosted import entry_of
from slim_rl.dialogue.partner import Usage
from slim_rl.errors import ConfigError, DataError
from slim_rl.partners.ledger import Ledger


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """The price of `model`, or of the model that it is a dated snapshot of. None if there is none."""
    name = entry_of(model, prices)
    return prices[name] if name is not None else None


def cost_usd(price: Price | None, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
    """US dollars; cached tokens are part of the input ones. 0.0 where no price is known."""
    if price is None:
        return 0.0
    fresh = input_tokens - cached_tokens
    return (fresh * price.input + cached_tokens * price.cached + output_tokens * price.output) / 1e6


@dataclass
class Spend:
    """What the calls of a run have taken so far, and how much they may.

    Attributes:
        budget_usd: None for no limit.
        reserve: share of the budget that only games that have begun may use.
        total: the sum over all calls of this process.
        ledger: where it is kept, once `keep` has named the run's folder.
        trouble: why it cannot be kept, as a sentence; None while it can.
    """

    budget_usd: float | None = None
    reserve: float = 0.0
    total: Usage = field(default_factory=Usage)
    ledger: Ledger | None = None
    trouble: str | None = None
    _aside: dict[object, float] = field(default_factory=dict)  # call -> US dollars
    _written: tuple[Usage, float] | None = (Usage(), 0.0)

    def keep(self, folder: Path) -> None:
        """Keeps the total in the run's `folder` from now on. In the folder of another run than before it begins anew."""
        if self.ledger is not None:
            if self.ledger.folder == folder.absolute():
                return
            self.total = Usage()
        self.ledger, self.trouble, self._written = Ledger(folder.absolute()), None, (Usage(), 0.0)
        self._write()

    @property
    def spent_before(self) -> float:
        """US dollars that the run's earlier starts and its other processes have spent."""
        return self.ledger.others_usd() if self.ledger is not None else 0.0

    def add(self, usage: Usage) -> None:
        """Counts what a call has taken; `give_back` keeps it."""
        self.total += usage

    def set_aside(self, call: object, usd: float, opening: bool) -> bool:
        """Sets aside what a call may cost, which is to be given back. False: it does not fit, or not beside the calls in flight.

        Args:
            opening: it is the first call of its game.

        Raises:
            DataError: the run's other processes could not see it.
        """
        if self.budget_usd is None:
            return True
        limit = self._limit(opening)
        try:
            with self.ledger.alone() if self.ledger else contextlib.nullcontext((0.0, 0.0)) as (spent, in_flight):
                spent += self.total.cost_usd
                in_flight += math.fsum(self._aside.values())
                if spent >= limit or (in_flight and spent + in_flight + usd > limit):
                    return False
                self._aside[call] = usd
                self._write()
        except OSError as error:
            where = error.filename or (self.ledger.folder if self.ledger else "")
            self.trouble = f"Cannot keep what the run spends ({where}: {error.strerror}); make it writable and resume."
            self._written = None  # `refusal` tries again
        if self.trouble is not None:
            self._aside.pop(call, None)
            raise DataError(self.trouble)
        return True

    def give_back(self, call: object) -> None:
        """The call is counted, or has cost nothing."""
        self._aside.pop(call, None)
        self._write()

    def refusal(self, opening: bool) -> str | None:
        """Why the next call may not be made, or None. `opening`: it is the first of its game."""
        if self.trouble is not None:  # what is not counted should not be paid for
            self._write()
        if self.trouble is not None or self.budget_usd is None:
            return self.trouble
        try:
            spent = self.spent_before + self.total.cost_usd
        except OSError as error:
            return (
                f"Cannot read what the run has spent ({error.filename}: {error.strerror}); make it readable and resume."
            )
        if spent >= self.budget_usd:
            return f"The partner's budget of ${self.budget_usd:.2f} is spent (${spent:.4f}); raise partner.openai.budget_usd."
        if spent >= self._limit(opening):
            return (
                f"${spent:.4f} of the partner's budget of ${self.budget_usd:.2f} is spent; the rest is kept for games that "
                "have begun. Raise partner.openai.budget_usd to play more."
            )
        return None

    def _limit(self, opening: bool) -> float:
        """US dollars that such a call may use."""
        return (self.budget_usd or 0.0) * (1 - self.reserve if opening else 1.0)

    def _write(self) -> None:
        now = (self.total, math.fsum(self._aside.values()))
        if self.ledger is None or now == self._written:
            return
        try:
            self.ledger.write(asdict(self.total) | {"reserved_usd": now[1]})
            self.trouble, self._written = None, now
        except DataError as error:
            self.trouble, self._written = str(error), None


def check_budget(config: OpenAIConfig) -> None:
    """Raises ConfigError for a budget that cannot be kept, since the model's price is not known."""
    if config.budget_usd is not None and price_of(config.model, config.prices) is None:
        raise ConfigError(
            f"partner.openai.budget_usd is set, but partner.openai.prices has no entry for {config.model!r}: add its price."
        )
