"""Check, before training, whether asking raises the reward under a config.

    asking is rewarded if one random question gains reward, and no player without questions gains more than one honest solo plan

A policy that rarely asks learns to ask only if its first question raises the reward. If trial and error with plans, chance or a cheat
reach the same reward, it learns those instead. `play` runs scripted players, and `results` judges their rewards.
"""

from slim_rl.lab.incentives.play import GAMES, QUESTIONS, measure
from slim_rl.lab.incentives.results import TOLERANCE, Incentives, PlayerResult

__all__ = ["GAMES", "QUESTIONS", "TOLERANCE", "Incentives", "PlayerResult", "measure"]
