"""Values of each turn of an annotated dialogue, by the policy's knowledge then, for per-turn credit (`slim_rl.lab.credit`)."""

from collections.abc import Iterator
from statistics import fmean

import numpy as np

from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.games.matching.questions.answers import answers, informs
from slim_rl.games.matching.questions.value import Knowledge
from slim_rl.games.matching.roster import Pair
from slim_rl.games.matching.state import GameState
from slim_rl.measured import Gain


def state_values(dialogue: Dialogue) -> list[float]:
    """Returns the state value before each policy turn: the best expected score, as a share of the best.

    It is not rounded, as `Turn.state_value` is.

    Raises:
        DataError: the game is not the matching game.
    """
    return [knowledge.expected for _, knowledge, _ in _before_turns(dialogue)]


def expected_gains(dialogue: Dialogue) -> list[Gain]:
    """Returns each policy turn's expected gain in state value, with its baseline.

    A question: the expected value (`Knowledge.expected_value`) of the pairs that the reply answers for the first time; if several, the
    maximum. An answer is a true value that the question did not name itself, or the truth that there is no score. A pair without an answer
    can still be asked about. The last turn: the expected loss of the agreed plan against the best one; None without agreement. The baseline:
    the mean expected value over the pairs that were neither known nor answered before.

    Raises:
        DataError: the game is not the matching game.
    """
    turns, out, before = sum(turn.role == "policy" for turn in dialogue.turns), list[Gain](), set[Pair]()
    for _, knowledge, answered in _before_turns(dialogue):
        promised = max((float(knowledge.expected_value[pair]) for pair in answered - before), default=0.0)
        last = len(out) == turns - 1
        left = [pair for pair in map(tuple, np.argwhere(~knowledge.known).tolist()) if pair not in before]
        baseline = fmean(float(knowledge.expected_value[pair]) for pair in left) if left else 0.0
        out.append(Gain(_of_agreement(dialogue, knowledge) if last else promised, baseline))
        before |= answered
    return out


def _of_agreement(dialogue: Dialogue, knowledge: Knowledge) -> float | None:
    """Returns the expected loss of the agreed plan against the best one; None without agreement."""
    plans = [turn.action["assignment"] for turn in dialogue.turns if turn.action and turn.action.get("assignment")]
    agreed = dialogue.stop_reason == StopReason.AGREED and plans
    return knowledge.expects(plans[-1]) - knowledge.expected if agreed else None


def _before_turns(dialogue: Dialogue) -> Iterator[tuple[Turn, Knowledge, set[Pair]]]:
    """Yields each policy turn, its knowledge before it, and the pairs that it asked about and the reply answered."""
    state = GameState.from_dict(dialogue.game_state)
    knowledge = Knowledge(state, dialogue.seat)
    asking: Turn | None = None
    for number, turn in enumerate(dialogue.turns):
        if turn.role == "policy":
            asking = turn if turn.error is None else asking
            reply = next((later for later in dialogue.turns[number + 1 :] if later.error is None), None)
            replied = reply is not None and reply.role != "policy" and turn.error is None
            yield turn, knowledge, _answered(turn, reply, state) if replied and reply is not None else set()
        elif turn.stated:
            message = (asking.pairs or (), asking.text) if asking is not None else ((), "")
            knowledge.update(informs(*message, turn.text, state.displayed(turn.seat), state.roster))
            asking = None


def _answered(turn: Turn, reply: Turn, state: GameState) -> set[Pair]:
    """Returns the pairs that a turn asks about and its reply answers truly, by a new value or a denial."""
    pairs, table = turn.pairs or (), state.displayed(reply.seat)
    if not (turn.seeking and turn.answered):
        return set()
    values = informs(pairs, turn.text, reply.text, table, state.roster)
    none = (pair for pair, answer in answers(pairs, reply.text, state.roster).items() if answer == "none")
    return {*values, *((r, p) for r, p in none if table[r][p] is None)} & {*pairs}
