"""The matching game: DialOp's "optimization". Everything that knows what a reviewer and a paper are is in this folder.

env, planning, settings      the environments: for two players, and for one; their section of a config
instance, generate, optimum  one game, generated games, the best assignment
view, viewer                 what one seat sees of a game; its board as the report draws it
roster, actions, prompt      names in free text, legal actions, the texts that players read
records, chat_data           games that people played: read, scored again, and as chat data
reading/                     what a message asks and states
questions/                   the annotator: classes and values of questions, and the credit of each turn
partners/                    scripted partners, a chat model as one, and how they judge a plan
references, audit, players   rewards of plans without dialogue; the partner's replies against the truth; scripted askers and cheats
baselines                    scripted policies to compare a policy with: floor and ceiling
demonstrations               the scripted player that the warm start learns from
"""

from slim_rl.games.matching.env import MatchingEnv

__all__ = ["MatchingEnv"]
