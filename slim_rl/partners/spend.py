"""Spending of a run, in its folder: one row per process in spend/spend.sqlite, and the budget.

    a run has spent the sum over its rows: those of earlier starts and of other processes count
    the most that a call may cost is reserved before it is sent, and released when it has its answer or its fault

A call that does not fit next to the calls in flight waits for them; if none is in flight, one may go as long as anything is left: a
budget is exceeded by one reply at most. A row is written before and after each call, so a killed process loses only what is in flight. A
process holds its own lock while it lives: its reservations count no longer than that.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock, Timeout

from slim_rl.config import OpenAIConfig, Price
from slim_rl.config.hosted import entry_of
from slim_rl.dialogue.partner import Usage
from slim_rl.errors import ConfigError, DataError
from slim_rl.files import host_name
from slim_rl.partners.store import Store

FILE = Path("spend", "spend.sqlite")  # in the run's folder
COLUMNS = {"process": "TEXT PRIMARY KEY", "cost_usd": "REAL", "reserved_usd": "REAL", "total": "TEXT"}


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """Returns the price of `model`, or of the model that it is a dated snapshot of. None if there is none."""
    name = entry_of(model, prices)
    return prices[name] if name is not None else None


def cost_usd(price: Price | None, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
    """Returns US dollars; cached tokens are part of the input ones. 0.0 where no price is known."""
    if price is None:
        return 0.0
    fresh = input_tokens - cached_tokens
    return (fresh * price.input + cached_tokens * price.cached + output_tokens * price.output) / 1e6


def check_budget(config: OpenAIConfig) -> None:
    """Raises ConfigError for a budget that cannot be kept, since the model's price is not known."""
    if config.budget_usd is not None and price_of(config.model, config.prices) is None:
        raise ConfigError(
            f"partner.openai.budget_usd is set, but partner.openai.prices has no entry for {config.model!r}: add its price."
        )


def spent_usd(folder: Path) -> float:
    """Returns the US dollars that the run in `folder` has spent so far; 0.0 where nothing is kept."""
    return Spend(folder=folder).spent_before


class Spend:
    """What the calls of one process have cost, and how much those of the whole run may cost.

    Args:
        budget_usd: None for no limit.
        reserve: share of the budget that only games that have begun may use.
        folder: the run's; None: kept in memory until `keep` names one.

    Attributes:
        total: sum over all calls of this process.
        trouble: sentence that says why it cannot be kept; None while it can.
    """

    def __init__(self, budget_usd: float | None = None, reserve: float = 0.0, folder: Path | None = None) -> None:
        self.budget_usd, self.reserve = budget_usd, reserve
        # The tag: containers give every start the same host name and process id.
        self.process = f"{host_name()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.total = Usage()
        self._aside: dict[object, float] = {}  # call -> US dollars
        self._begin(folder)

    def _begin(self, folder: Path | None) -> None:
        self.folder = folder
        self.trouble: str | None = None
        self._path = folder / FILE if folder is not None else None
        self._store = Store(self._path, "spending", COLUMNS, local=False)
        self._alive: FileLock | None = None
        self._written: tuple[Usage, float] | None = (Usage(), 0.0)

    def keep(self, folder: Path) -> None:
        """Keeps the total in the run's `folder` from now on. In the folder of another run than before it begins at nothing."""
        if self.folder != folder.absolute():
            self.total = self.total if self.folder is None else Usage()
            self._begin(folder.absolute())
            self._write()

    @property
    def spent_before(self) -> float:
        """US dollars that all processes of the run but this one have spent. Raises OSError."""
        rows = self._store.rows("SELECT total(cost_usd) FROM spending WHERE process != ?", self.process)
        return math.fsum(usd for (usd,) in rows)

    def reserved_elsewhere(self) -> float:
        """Returns the US dollars that other processes that live have reserved for calls in flight. Raises OSError."""
        rows = self._store.rows("SELECT process, reserved_usd FROM spending WHERE process != ?", self.process)
        return math.fsum(usd for process, usd in rows if usd and self._lives(process))

    def add(self, usage: Usage) -> None:
        """Counts what a call has taken; `give_back` writes it."""
        self.total += usage

    def set_aside(self, call: object, usd: float, opening: bool) -> bool:
        """Reserves what a call may cost, until `give_back`. Returns False if it does not fit, or not next to the calls in flight.

        `opening`: it is the first call of its game. Raises DataError if the run's other processes could not see it.
        """
        if self.budget_usd is None:
            return True
        try:
            with self._store.changing():  # so no two processes take the same
                spent = self.spent_before + self.total.cost_usd
                in_flight = self.reserved_elsewhere() + math.fsum(self._aside.values())
                limit = self._limit(opening)
                if spent >= limit or (in_flight and spent + in_flight + usd > limit):
                    return False
                self._aside[call] = usd
                self._write()
        except OSError as error:
            self._fail(error)
        if self.trouble is not None:
            self._aside.pop(call, None)
            raise DataError(self.trouble)
        return True

    def give_back(self, call: object) -> None:
        """Releases what is reserved for the call, and writes the total."""
        self._aside.pop(call, None)
        self._write()

    def refusal(self, opening: bool) -> str | None:
        """Returns why the next call may not be made, or None. `opening`: it is the first of its game."""
        if self.trouble is not None:  # what is not counted should not be paid for
            self._write()
        if self.trouble is not None or self.budget_usd is None:
            return self.trouble
        try:
            spent = self.spent_before + self.total.cost_usd
        except OSError as error:
            self._fail(error)
            return self.trouble
        if spent >= self.budget_usd:
            return f"The partner's budget of ${self.budget_usd:.2f} is spent (${spent:.4f}); raise partner.openai.budget_usd."
        if spent >= self._limit(opening):
            return (
                f"${spent:.4f} of the partner's budget of ${self.budget_usd:.2f} is spent; the rest is kept for games that "
                "have begun. Raise partner.openai.budget_usd to play more."
            )
        return None

    def _limit(self, opening: bool) -> float:
        return (self.budget_usd or 0.0) * (1 - self.reserve if opening else 1.0)

    def _write(self) -> None:
        now = (self.total, math.fsum(self._aside.values()))
        if now == self._written:
            return
        row = (self.process, self.total.cost_usd, now[1], json.dumps(asdict(self.total)))
        try:
            with self._store.changing() as db:
                if self._alive is None and self._path is not None:
                    self._alive = self._lock(self.process)
                    with contextlib.suppress(OSError):  # no locks here
                        self._alive.acquire()  # for as long as we live
                db.execute("INSERT OR REPLACE INTO spending VALUES (?, ?, ?, ?)", row)
            self.trouble, self._written = None, now
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.trouble = (
            f"Cannot keep what the run spends in {self._path} ({error.strerror}); make it writable and resume."
        )
        self._written = None  # `refusal` tries again

    def _lives(self, process: str) -> bool:
        try:
            with self._lock(process).acquire(blocking=False):
                return False
        except Timeout:
            return True
        except OSError:  # no locks here
            return False

    def _lock(self, process: str) -> FileLock:
        assert self._path is not None
        return FileLock(self._path.with_name(f"{process}.lock"))
