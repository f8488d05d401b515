"""Control partner that repeats another dialogue's revelations turn by turn, whatever the policy writes.

The policy learns what asking brought, but asking does not bring it. `partner.replay` names the log of the dialogues that it is yoked to:
in the experiment that of the arm whose partner is shy, with the same seed. Its n-th message states the cells that the partner there
stated in its n-th message, and after the last of them no more. The dialogue is chosen so:

    the one of the same seed and game, if there is one: in runs of the same seed each training dialogue has its own twin
    else one of the same game, drawn by the dialogue's seed
    else one of any game, drawn so: as many cells as were stated there, drawn among those that it sees, each once

If several have the same seed and game, the last counts: held-out games were played before and after training.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any

from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import View
from slim_rl.errors import ConfigError, DataError
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.partners.scripted import NOTED, ScriptedPartner, choose, scores
from slim_rl.games.matching.reading.reader import Reading
from slim_rl.games.matching.roster import Pair
from slim_rl.games.matching.view import MatchingView
from slim_rl.seeds import seed_of

Schedule = tuple[tuple[Pair, ...], ...]  # what is told in each message
_Shown = tuple[tuple[int | None, ...], ...]  # what a partner sees, which tells games apart


@dataclass
class YokedPartner(ScriptedPartner):
    """See the module's docstring.

    Args:
        replay: a dialogue log, or a folder of them.

    Raises:
        ConfigError: there is no `replay`.
        DataError: the log cannot be read, or holds no dialogue of the matching game.
    """

    kind = "yoked"
    replay: InitVar[Path | None] = None

    def __post_init__(self, replay: Path | None) -> None:
        super().__post_init__()
        if replay is None:
            raise ConfigError("partner.kind is yoked but partner.replay is not set: give the path of a dialogue log.")
        self.path = replay
        self._twins: dict[tuple[int, _Shown], Schedule] = {}
        self._of_game: dict[_Shown, list[Schedule]] = defaultdict(list)
        self._all: list[Schedule] = []
        for dialogue in read_log(replay):
            if not dialogue.failed:
                self._add(dialogue)
        if not self._all:
            raise DataError(f"{replay} has no finished dialogue; give the log of another run.")

    def _add(self, dialogue: Dialogue) -> None:
        try:
            shown = GameState.from_dict(dialogue.game_state).displayed(1 - dialogue.seat)
        except DataError as error:
            raise DataError(f"{self.path}: {dialogue.id} is not of the matching game ({error})") from error
        schedule = tuple(
            tuple((r, p) for r, p in turn.stated or () if shown[r][p] is not None)
            for turn in dialogue.turns
            if turn.role == "partner" and turn.error is None and (turn.action or {}).get("kind") == "message"
        )
        self._twins[dialogue.seed, shown] = schedule
        self._of_game[shown].append(schedule)
        self._all.append(schedule)

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | {"log": self.path.name}

    def answer(self, message: Reading, view: View, game: MatchingView) -> str:
        number = sum(text.startswith("[message]") for text in view.sent)
        schedule = self.schedule(view.seed, game)
        cells = schedule[number] if number < len(schedule) else ()
        return scores(cells, game) if cells else choose(NOTED, view)

    def schedule(self, seed: int, game: MatchingView) -> Schedule:
        """Returns the cells to state in each message of the dialogue of this seed."""
        if (twin := self._twins.get((seed, game.table))) is not None:
            return twin
        rng = random.Random(seed_of(seed, "yoked"))
        if same := self._of_game.get(game.table):
            return rng.choice(same)
        cells = game.seen
        rng.shuffle(cells)
        left = iter(cells)
        return tuple(
            tuple(cell for _, cell in zip(cells_of_message, left, strict=False))
            for cells_of_message in rng.choice(self._all)
        )
