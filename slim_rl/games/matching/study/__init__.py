"""Instrument of the matching game, and parts of it for experiments alone; playing needs none of it.

players         scripted players: honest askers, those that try to do without, cheats; floor and ceiling for a policy
demonstrations  the scripted player that the warm start learns from
controls        partners that a policy was not trained with, or that answer whatever it asks
references      rewards of plans without dialogue, of ideal askers and of people; the board as the report draws it
aided           what a player learned, by which scripted players and the game's solver plan
credit          the worth of each turn, for per-turn credit
audit           a partner's replies against the truth
recorded        games that people played: read, scored again, and as chat data
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.questions.value import informative_questions
from slim_rl.games.matching.reading.acts import KINDS
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState
from slim_rl.games.matching.study.audit import faults
from slim_rl.games.matching.study.credit import expected_gains, state_values
from slim_rl.games.matching.study.demonstrations import curriculum
from slim_rl.games.matching.study.players import baselines, scripted_players
from slim_rl.games.matching.study.references import Games, frontiers, people, references, viewer_board
from slim_rl.measured import Instrument


class MatchingInstrument(Instrument):
    """Instrument of the matching game."""

    question_kinds: ClassVar[Mapping[str, str]] = KINDS
    # raised when the same dialogue would get other annotations; 1 stands for all logs that name none
    annotator_version = 11
    annotate = staticmethod(annotate)
    questions_worth_asking = staticmethod(informative_questions)
    state_values = staticmethod(state_values)
    expected_gains = staticmethod(expected_gains)
    partner_faults = staticmethod(faults)
    references = staticmethod(references)
    people = staticmethod(people)
    frontier = staticmethod(frontiers)
    viewer_board = staticmethod(viewer_board)
    scripted_players = staticmethod(scripted_players)
    baselines = staticmethod(baselines)
    curriculum = staticmethod(curriculum)

    def asks(self, text: str, game_state: Any = None) -> bool:
        """Returns True if a message seeks information, also if it is no sentence, since a lenient partner might answer it."""
        return read(text, Roster.default() if game_state is None else GameState.from_dict(game_state).roster).seeking


class PlanningInstrument(MatchingInstrument):
    """Instrument of the game for one, where nobody can be asked."""

    annotator_version = 12
    questions_worth_asking = Instrument.questions_worth_asking
    frontier = Instrument.frontier

    @staticmethod
    def references(games: Games) -> dict[str, dict[str, Any]]:
        """Returns those that do not depend on what a seat sees, since the policy sees both tables."""
        return {name: line for name, line in references(games).items() if name != "solo"}

    @staticmethod
    def annotate(dialogue: Any) -> None:
        """Annotates all but what the policy knows, which `questions.value` takes from one table: here it sees both."""
        annotate(dialogue)
        for turn in dialogue.turns:
            turn.state_value = turn.unknown = turn.best_known = None
