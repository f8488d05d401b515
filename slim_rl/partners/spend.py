"""Spending of a run, in US dollars: one file per process in the run's folder, and the budget.

Invariants:
    A run's spending is the sum over its files: earlier starts and other processes count.
    Each file is replaced atomically after each answer, so a killed process loses only the requests in flight.
    No request is sent once the budget is spent, so a budget is exceeded by the requests in flight at most.
    No request is sent while spending cannot be written.
"""

import json
import math
import os
import secrets
from dataclasses import asdict
from pathlib import Path

from slim_rl.dialogue.record import Usage
from slim_rl.errors import DataError
from slim_rl.files import host_name, read_object, write_atomically

FOLDER = "spend"  # in the run's folder


class Spend:
    """Spending of one process, and the budget of its run.

    Args:
        budget_usd: None for no limit.
        player: who spends it, in sentences.

    Attributes:
        folder: the run's folder, which `keep` names; None: nothing is written.
        total: sum over all calls of this process.
    """

    def __init__(self, budget_usd: float | None = None, player: str = "partner") -> None:
        self.budget_usd, self.player, self._name = budget_usd, player, ""
        self.folder: Path | None = None
        self.total = self._written = Usage()

    def keep(self, folder: Path) -> None:
        """Writes the total into the run's `folder` from now on. For another run's folder it starts at zero."""
        if self.folder != folder.absolute():
            self.total = self.total if self.folder is None else Usage()
            self.folder, self._written = folder.absolute(), Usage()
            # The random part: containers give every start the same host name and process id, and a run may be returned to.
            self._name = f"{host_name()}-{os.getpid()}-{secrets.token_hex(4)}.json"
            self._write()

    def spent_elsewhere(self) -> float:
        """Returns the US dollars that all other processes of the run have spent. Raises DataError."""
        if self.folder is None:
            return 0.0
        files = [file for file in (self.folder / FOLDER).glob("*.json") if file.name != self._name]
        return math.fsum(float(read_object(file).get("cost_usd", 0.0)) for file in files)

    def add(self, usage: Usage) -> None:
        """Counts and writes a call's usage; `refusal` reports a failed write."""
        self.total += usage
        self._write()

    def refusal(self) -> str | None:
        """Returns a sentence if no request may be sent (budget spent, spending cannot be written), else None."""
        if trouble := self._write():
            return trouble
        if self.budget_usd is None:
            return None
        try:
            spent = self.spent_elsewhere() + self.total.cost_usd
        except DataError as error:
            return str(error)
        if spent < self.budget_usd:
            return None
        budget = f"The {self.player}'s budget of ${self.budget_usd:.2f} is spent (${spent:.4f})."
        return f"{budget} Raise {self.player}.openai.budget_usd."

    def _write(self) -> str | None:
        """Writes the total if it has changed. Returns a sentence if that fails, else None."""
        if self.folder is None or self.total == self._written:
            return None
        try:
            write_atomically(self.folder / FOLDER / self._name, json.dumps(asdict(self.total)))
        except OSError as error:
            return f"Cannot write spending to {self.folder / FOLDER} ({error.strerror}). Make it writable and resume."
        self._written = self.total
        return None
