"""Dialogues of a player who says given messages, and what it may learn."""

from collections.abc import Sequence
from pathlib import Path

from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Dialogue
from slim_rl.environment import View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.questions.annotate import annotate
from slim_rl.games.matching.state import GameState, MatchingSettings
from tests.dialogue.players import Says
from tests.made import played

GAME = next(generate_games(1, MatchingSettings(scales=False), seed=3))
MANY = 64  # pairs that the partner answers in one message: all of them


# {a}, {b}, {c}: reviewers; {x}, {y}, {z}: papers
ALL = Path(__file__).with_name("told.txt").read_text(encoding="utf-8").splitlines()


def in_turn(messages: Sequence[str]) -> Says:
    """A player that says its messages one by one, then greets."""

    def speak(view: View) -> str:
        own = sum(utterance.seat == view.seat for utterance in view.history)
        text = messages[own] if own < len(messages) else "Hello."
        return text if text.startswith("[propose]") else f"[message] {text}"

    return Says(speak)


def play(messages: Sequence[str], partner: Partner, game: GameState = GAME, seed: int = 0) -> Dialogue:
    dialogue = played(MatchingEnv(max_turns=2 * len(messages)), in_turn(messages), partner, game, seed=seed)
    annotate(dialogue)
    return dialogue


def learnable(game: GameState) -> list[tuple[int, int]]:
    """Pairs that the partner sees and the policy does not, in an order in which neighbours differ on both sides."""
    cells = [(r, (r + step) % game.n) for step in range(game.n) for r in range(game.n)]
    return [(r, p) for r, p in cells if game.mask2[r][p] and not game.mask1[r][p]]


def worded(wording: str, game: GameState = GAME, at: int = 0) -> str:
    """Fills in names: {a} on {x} is a pair to learn, {v} its score and {wrong} another one; {b} on {y} and {c} on {z} are two more."""
    pairs = learnable(game)
    (a, x), (b, y), (c, z) = (pairs[(at + step) % len(pairs)] for step in range(3))
    names, papers = game.roster.reviewers, game.roster.short_papers
    fields = {"a": names[a], "b": names[b], "c": names[c], "x": papers[x], "y": papers[y], "z": papers[z]}
    return wording.replace("\\n", "\n").format(**fields, v=game.table[a][x], wrong=game.table[a][x] + 1)
