"""Partners that show what a policy learned.

erring     a shy partner that states a wrong score in 10% of its answers, always the same for a pair
rephrased  a shy partner with other sentences, all of which `reading.reader` can read
yoked      a partner that repeats another dialogue's revelations turn by turn, whatever the policy writes: the policy learns what asking
           brought, but asking does not bring it
"""

import random
from collections import defaultdict
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any

from slim_rl.dialogue.log import read_log
from slim_rl.environment import View
from slim_rl.errors import ConfigError, DataError
from slim_rl.games.matching.generate import VALUES
from slim_rl.games.matching.partners.scripted import (
    NOTED,
    SENTENCES,
    ScriptedPartner,
    ShyPartner,
    check_chance,
    choose,
    drawn,
    scores,
)
from slim_rl.games.matching.reading.reader import Reading
from slim_rl.games.matching.roster import Pair
from slim_rl.games.matching.state import GameState, MatchingView
from slim_rl.seeds import seed_of

Schedule = tuple[tuple[Pair, ...], ...]  # what is told in each message


@dataclass
class ErringPartner(ShyPartner):
    """Shy partner that errs.

    Attributes:
        errs: chance that the score it states for a pair is another one, drawn uniformly from all possible ones.
    """

    kind = "erring"
    errs: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chance("errs", self.errs)

    def value(self, pair: Pair, view: View, game: MatchingView) -> int | None:
        value = game[pair]
        if value is None or drawn(view, "errs", pair) >= self.errs:
            return value
        others = [other for other in (int(number * game.scale) for number in range(VALUES)) if other != value]
        return others[int(drawn(view, "error", pair) * len(others))]


@dataclass
class RephrasedPartner(ShyPartner):
    """Shy partner with other sentences. Which words it takes for a pair is drawn from the dialogue's seed."""

    kind = "rephrased"
    score_sentences = SENTENCES["rephrased_scores"]
    denial_sentences = SENTENCES["rephrased_denials"]
    wordings: int = len(score_sentences)


@dataclass
class YokedPartner(ScriptedPartner):
    """Partner whose n-th message states what the partner of another dialogue stated in its n-th message, and then no more.

    That dialogue is the one of the same seed and game, if there is one: in runs of the same seed each training dialogue has its own twin
    (if several, the last: held-out games were played before and after training). Else it is one of the same game, drawn by the dialogue's
    seed; else one of any game, with as many cells as were stated there, drawn among those that it sees, each once.

    Args:
        replay: a dialogue log, or a folder of them: in an experiment that of the arm whose partner is shy, with the same seed.

    Raises:
        ConfigError: there is no `replay`.
        DataError: the log cannot be read, or holds no dialogue of the matching game.
    """

    kind = "yoked"
    reads = ("replay",)
    replay: InitVar[str | Path | None] = None

    def __post_init__(self, replay: str | Path | None) -> None:
        super().__post_init__()
        if replay is None:
            raise ConfigError("partner.kind is yoked but partner.args.replay is not set: name a dialogue log.")
        self.path = replay = Path(replay)
        self._twins: dict[Any, Schedule] = {}  # by seed and what the partner sees
        self._of_game: dict[Any, list[Schedule]] = defaultdict(list)
        for dialogue in read_log(replay):
            if dialogue.failed:
                continue
            try:
                shown = GameState.from_dict(dialogue.game_state).displayed(1 - dialogue.seat)
            except DataError as error:
                raise DataError(f"{replay}: {dialogue.id} is not of the matching game ({error})") from error
            schedule = tuple(
                tuple((r, p) for r, p in turn.stated or () if shown[r][p] is not None)
                for turn in dialogue.turns
                if turn.role == "partner" and turn.error is None and (turn.action or {}).get("kind") == "message"
            )
            self._twins[dialogue.seed, shown] = schedule
            self._of_game[shown].append(schedule)
        self._all = [schedule for schedules in self._of_game.values() for schedule in schedules]
        if not self._all:
            raise DataError(f"{replay} has no finished dialogue; give the log of another run.")

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
        return tuple(tuple(cell for _, cell in zip(told, left, strict=False)) for told in rng.choice(self._all))
