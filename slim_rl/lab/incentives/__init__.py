"""What a config pays before anything is trained (docs/how-to/check-that-asking-raises-reward.md).

    asking pays if one random question earns more than none, and if no player who asks nothing earns more than one honest solo plan

A policy that starts without questions climbs only where its first question pays; and where plans tried one by one, a plan by
chance or a cheat earn what questions earn, it learns those. `play` has scripted players play, `found` judges what they earned,
`start` keeps the sentence that a run begins with, `figure` draws the curves.
"""

from slim_rl.lab.incentives.found import FREE, JUDGED, Incentives, PlayerIncentive, as_dict
from slim_rl.lab.incentives.play import GAMES, QUESTIONS, measure
from slim_rl.lab.incentives.start import at_a_start

__all__ = ["FREE", "GAMES", "JUDGED", "QUESTIONS", "Incentives", "PlayerIncentive", "as_dict", "at_a_start", "measure"]
