"""The matching game: DialOp's "optimization". Everything that knows what a reviewer and a paper are is in this folder.

env, planning      the environments: for two players, and for one
state, generate    settings, one game, what a seat sees of it, its best assignment; generated games
roster, actions    names in free text, legal actions
prompt             the texts that players read
reading/           what a message asks and states
questions/         the annotator: what a dialogue asks, and what its questions are worth
partners/          scripted partners, a chat model as one, and how they judge a plan
study/             scripted players, demonstrations, references, audit, controls; playing needs none of it
"""

from slim_rl.games.matching.env import MatchingEnv

__all__ = ["MatchingEnv"]
