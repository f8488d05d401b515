"""Value of questions. An asker with n characters left wins with chance 1/n by a guess, and a question splits them in two:

    bits             the expected information of its answer: the entropy of the split
    expected value   what it is expected to add to the chance: 1/n if both parts have somebody in them, else 0

Two parts of shares p and 1 - p are won with chances 1/(pn) and 1/((1 - p)n), so the expected chance is 2/n whatever p is. All questions
that split are therefore equal at once, and are ranked by their bits. The greedy asker asks the one of the most bits.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from examples.guess_who import players
from examples.guess_who.game import TRAITS, Suspects
from slim_rl import Dialogue, Frontier, Instrument, rank


class GuessWhoInstrument(Instrument):
    """What the asker's questions are worth. `pairs` of a turn holds what it asks about, such as ("hat",)."""

    question_kinds: ClassVar[Mapping[str, str]] = {
        "trait": "about one trait", "character": "about one character", "repeat": "what was asked before"
    }  # fmt: skip
    annotator_version = 5
    curriculum = staticmethod(players.curriculum)

    def annotate(self, dialogue: Dialogue) -> None:
        """Fills the annotations, and the columns ``board``, ``left`` (characters) and ``bits`` (expected of all questions)."""
        for turn in dialogue.turns:
            turn.clear_annotations()
            turn.questions, turn.pairs, turn.learnable, turn.informative, turn.stated = [], [], [], [], []
            turn.redundant, turn.seeking = [], False
        game = Suspects.of(dialogue.game_state)
        asked, bits, last = set[str](), 0.0, None
        for turn in dialogue.turns:
            action = turn.action or {}
            if turn.role == "policy":
                turn.state_value = 1 / len(game.left) if turn.seat == 0 else 1.0
            if turn.seat == 0:
                last = None
            if action.get("kind") == "ask":
                about, worth, last = action["about"], game.bits(action["about"]), turn
                kind = "repeat" if about in asked else "trait" if about in TRAITS else "character"
                turn.questions, turn.pairs, turn.seeking = [kind], [(about,)], True
                turn.answered, turn.question_value, turn.gain, turn.regret = False, 0.0, 0.0, 0.0
                if worth and about not in asked:
                    others = [game.bits(each) for each in game.questions if each not in asked and each != about]
                    turn.learnable, turn.question_rank = [(about,)], rank(worth, [each for each in others if each])
                else:
                    turn.redundant, turn.regret = [(about,)], 1 / len(game.left) if len(game.left) > 1 else 0.0
                asked.add(about)
                bits += worth
            elif last is not None and action.get("kind") == "answer" and action["about"] != "pass":
                (about,) = last.pairs[0] if last.pairs else ("",)
                before, hidden, last.answered = len(game.left), game.secret in game.left, True
                last.informative, turn.stated = list(last.pairs or ()) if game.bits(about) else [], last.pairs
                game.update(about, action["about"] == "yes")
                last.question_value = 1 / len(game.left) - 1 / before
                last.gain = (game.secret in game.left) / len(game.left) - hidden / before
        own = [turn for turn in dialogue.turns if turn.role == "policy" and turn.seat == 0]
        if own:
            own[-1].best_known = (game.secret in game.left) / len(game.left)
        dialogue.columns |= {"board": len(game.traits), "left": len(game.left), "bits": round(bits, 6)}

    def state_values(self, dialogue: Dialogue) -> list[float]:
        return [turn.state_value or 0.0 for turn in dialogue.turns if turn.role == "policy"]

    def asks(self, text: str, game_state: Any = None) -> bool:
        return "[ask]" in text.lower()

    def questions_worth_asking(self, game_state: Any, seat: int, number: int, seed: int) -> list[str]:
        game, found = Suspects.of(game_state), list[str]()
        for about in random.Random(seed).sample(TRAITS, len(TRAITS)):
            if seat == 0 and game.bits(about):
                found.append(f"[ask] {about}")
                game.update(about, game.fits(about, str(game.secret)))
        return found[:number]

    def references(self, games: Sequence[tuple[Any, int]]) -> dict[str, dict[str, Any]]:
        rewards = [1 / len(state["characters"]) for state, seat in games if seat == 0]
        about = "a guess without a question"
        return {"random": {"about": about, "rewards": rewards, "drawn": True}} if rewards else {}

    def frontier(self, games: Sequence[tuple[Any, int]], most: int, seed: int = 0) -> dict[str, Frontier]:
        """Returns the frontier of the asker that asks the question of the most bits. Seat 1 knows the character and always wins."""
        lines: list[list[tuple[float, float]]] = []
        for state, seat in games:
            game = Suspects.of(state)
            if seat == 1:
                game.left = [str(game.secret)]
            lines.append([])
            for _ in range(most + 1):
                chance = 1 / len(game.left)
                lines[-1].append((chance, chance if chance < 1 else -math.inf))
                about = max(game.questions, key=game.bits)
                game.update(about, game.fits(about, str(game.secret)))
        curves = np.array(lines).reshape(-1, most + 1, 2)
        return {"greedy": Frontier(curves[..., 0], curves[..., 1])} if lines else {}
