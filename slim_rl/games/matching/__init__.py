"""The matching game: instances, optimum, actions, environment, data. Needs numpy and scipy, and no framework."""

from slim_rl.games.matching.actions import Action, ActionError, format_proposal, parse_action
from slim_rl.games.matching.dataset import GameRow, read_games, write_games, write_parquet
from slim_rl.games.matching.env import MatchingEnv, MatchingView, build_env
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.optimum import Assignment, best_assignment
from slim_rl.games.matching.records import Replay, replay
from slim_rl.games.matching.roster import Mention, Roster

__all__ = [
    "Action",
    "ActionError",
    "Assignment",
    "GameRow",
    "GameState",
    "MatchingEnv",
    "MatchingView",
    "Mention",
    "Replay",
    "Roster",
    "best_assignment",
    "build_env",
    "format_proposal",
    "generate_games",
    "parse_action",
    "read_games",
    "replay",
    "write_games",
    "write_parquet",
]
