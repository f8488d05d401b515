"""The matching game: DialOp's "optimization". All that knows what a reviewer and a paper are is in this folder.

env, planning, settings      the environments: for two, and for one; their part of a config
instance, generate, optimum  one dealt game, games dealt, the best assignment
view, viewer                 what one seat sees of a game; its board as the report draws it
roster, actions, prompt      names in free text, what a player may say, what players are told
records, chat_data           games that people played: read and scored again, and as chat data
reading/                     what a message asks and tells
questions/                   the measuring instrument: classes and worth of questions, and what that pays a turn
partners/                    scripted partners, a chat model as one, and how they judge a plan
references, audit, players   what plans without talk reach; what a partner said, against the truth; scripted askers and cheats
baselines                    scripted policies that a policy is set against: floor and ceiling
demonstrations               the scripted player that the warm start learns from
"""

from slim_rl.games.matching.env import MatchingEnv

__all__ = ["MatchingEnv"]
