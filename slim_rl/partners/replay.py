"""A partner that says again what a recorded one said. It never invents: where the record ends, so does the dialogue.

For debugging: `partner.replay` names a dialogue log. A dialogue is found by what the partner's seat was dealt and by
what was said so far, so that of several recorded dialogues of a game the one that fits is followed, the same seed's
first.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from slim_rl.config import PartnerConfig
from slim_rl.dialogue.partner import PartnerFailure, Reply
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import View
from slim_rl.errors import ConfigError, DataError
from slim_rl.games.matching.env import MatchingView
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.roster import Roster

Said = list[tuple[int, str]]  # (seat, text): what the partner's seat has seen
Dealt = tuple[int, Roster, tuple[tuple[int | None, ...], ...]]  # seat, names, displayed table


class ReplayPartner:
    """Replays the partner's turns of a log (JSONL of `Dialogue.to_dict`, read whole at the start).

    Raises:
        DataError: the log cannot be read, or a whole line of it is no dialogue of the matching game.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._records: dict[Dealt, list[tuple[int, Said]]] = defaultdict(list)  # what was said, with the seed
        for dialogue in _read(self.path):
            seat = 1 - dialogue.seat
            state = GameState.from_dict(dialogue.game_state)
            said = [(turn.seat, turn.text) for turn in dialogue.turns if turn.error is None or turn.seat == seat]
            self._records[seat, state.roster, state.displayed(seat)].append((dialogue.seed, said))

    @classmethod
    def from_config(cls, config: PartnerConfig, make_env: Any = None) -> ReplayPartner:
        if config.replay is None:
            raise ConfigError(
                "partner.kind is 'replay' but partner.replay is not set: give the path of a dialogue log."
            )
        return cls(config.replay)

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": "replay", "log": self.path.name}

    async def reply(self, view: View) -> Reply:
        """The recorded partner's next turn. Raises PartnerFailure if there is none to be had."""
        game = view.private
        if not isinstance(game, MatchingView):
            raise PartnerFailure("The replay partner plays the matching game only: give another game its own partner.")
        records = self._records.get((view.seat, game.roster, game.table))
        if not records:
            raise PartnerFailure(f"{self.path} holds no dialogue of this game with its partner on seat {view.seat}.")
        so_far = [(utterance.seat, utterance.text) for utterance in view.history]
        records = sorted(records, key=lambda record: record[0] != view.seed)
        follows = [said for _, said in records if said[: len(so_far)] == so_far]
        for said in follows:
            if len(said) > len(so_far) and said[len(so_far)][0] == view.seat:
                return Reply(said[len(so_far)][1])
        if follows:
            raise PartnerFailure(f"The recorded turns in {self.path} are used up after turn {len(so_far)}.")
        agreed = max(_common(said, so_far) for _, said in records)
        raise PartnerFailure(
            f"The conversation left the one in {self.path} at turn {agreed + 1}: "
            f"{so_far[agreed][1][:80]!r} was not said there."
        )


def _read(path: Path) -> list[Dialogue]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the log {path} to replay: {error}; give the path of a dialogue log.") from error
    dialogues = []
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n") and number == len(lines):
            break  # torn: its writer was cut off
        try:
            dialogues.append(Dialogue.from_dict(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"Line {number} of {path} is no dialogue: {error}.") from error
    return dialogues


def _common(a: Said, b: Said) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
