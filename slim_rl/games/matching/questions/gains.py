"""What each turn of an annotated dialogue was worth to the policy by what it knew then: what `train.credit` pays by the turn."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import numpy as np

from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.games.matching.instance import GameState
from slim_rl.games.matching.questions.value import Knowledge
from slim_rl.games.matching.roster import Pair
from slim_rl.measured import Gain


def state_values(dialogue: Dialogue) -> list[float]:
    """The state value before each of the policy's turns of an annotated dialogue: the best expected score by what it knew, as a share of
    the best. Not rounded, as `Turn.state_value` is.

    Raises:
        DataError: the game is not the matching game.
    """
    return [knowledge.expected for _, knowledge, _ in _before_turns(dialogue)]


def expected_gains(dialogue: Dialogue) -> list[Gain]:
    """What each of the policy's turns of an annotated dialogue was expected to add to the state value.

    A question: the promise of what it asks about for the first time (`Knowledge.promise`), of several pairs the highest; 0 if it has no
    answer, without which condition a policy learns to name many pairs at once, which a shy partner does not answer. That the other
    seat has no score is an answer. The last turn: what the plan that was agreed on was expected to score less; None if there is none.
    What is usual: the mean promise of the pairs that it neither knew nor had asked about.

    Raises:
        DataError: the game is not the matching game.
    """
    turns, out, asked = sum(turn.role == "policy" for turn in dialogue.turns), list[Gain](), set[Pair]()
    for turn, knowledge, new in _before_turns(dialogue):
        promised = max((float(knowledge.promise[pair]) for pair in new), default=0.0) if turn.answered else 0.0
        last = len(out) == turns - 1
        left = [pair for pair in map(tuple, np.argwhere(~knowledge.known).tolist()) if pair not in asked]
        usual = fmean(float(knowledge.promise[pair]) for pair in left) if left else 0.0
        out.append(Gain(_of_agreement(dialogue, knowledge) if last else promised, usual))
        asked |= new
    return out


def _of_agreement(dialogue: Dialogue, knowledge: Knowledge) -> float | None:
    """What the plan that was agreed on was expected to score less than the best one; None without agreement."""
    plans = [turn.action["assignment"] for turn in dialogue.turns if turn.action and turn.action.get("assignment")]
    agreed = dialogue.stop_reason == StopReason.AGREED and plans
    return knowledge.expects(plans[-1]) - knowledge.expected if agreed else None


def _before_turns(dialogue: Dialogue) -> Iterator[tuple[Turn, Knowledge, set[Pair]]]:
    """Each of the policy's turns of an annotated dialogue, what it knew then (its own cells and those that it was told), and which
    pairs it asks about for the first time.
    """
    knowledge, before = Knowledge(GameState.from_dict(dialogue.game_state), dialogue.seat), set[Pair]()
    for turn in dialogue.turns:
        if turn.role == "policy":
            new = set(turn.pairs or ()) - before if turn.seeking else set[Pair]()
            yield turn, knowledge, new
            before |= new
        else:
            knowledge.update(turn.told or ())
