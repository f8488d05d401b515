"""The matching game: DialOp's "optimization". All that knows what a reviewer and a paper are is in this folder.

env, planning               the environments: for two, and for one
instance, generate, optimum one dealt game, games dealt, the best assignment
roster, actions, prompt     names in free text, what a player may say, what players are told
records, chat_data          games that people played: read and scored again, and as chat data
reading/                    what a message asks and tells
questions/                  the measuring instrument: classes and worth of questions
partners/                   scripted partners, a chat model as one, and how they judge a plan
references, audit           what plans without talk reach; what a partner said, against the truth
demonstrations              the scripted player that the warm start learns from
"""

from slim_rl.games.matching.actions import Action, ActionError, format_proposal, parse_action
from slim_rl.games.matching.env import MatchingEnv, MatchingView
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.optimum import Assignment, best_assignment
from slim_rl.games.matching.planning import PlanningEnv
from slim_rl.games.matching.records import RecordedGame, read_record
from slim_rl.games.matching.roster import Mention, Roster
from slim_rl.games.matching.settings import MatchingSettings

__all__ = [
    "Action",
    "ActionError",
    "Assignment",
    "GameState",
    "MatchingEnv",
    "MatchingSettings",
    "MatchingView",
    "Mention",
    "PlanningEnv",
    "RecordedGame",
    "Roster",
    "best_assignment",
    "format_proposal",
    "generate_games",
    "parse_action",
    "read_record",
]
