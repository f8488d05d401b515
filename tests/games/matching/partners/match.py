"""A match between a partner and a player whose words are given, on boards of all kinds."""

import re
from collections.abc import Iterable

from slim_rl.environment import Utterance, View
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import ScriptedPartner
from slim_rl.games.matching.roster import Pair
from slim_rl.games.matching.state import GameState, MatchingSettings

SMALL, SCALED, LARGE = (
    next(generate_games(1, MatchingSettings(n=n, scales=scales), seed=4))
    for n, scales in ((3, False), (3, True), (8, True))
)


class Match:
    """A game between a partner and someone whose words are given; keeps what the partner sees."""

    def __init__(
        self, partner: ScriptedPartner, state: GameState = SMALL, seat: int = 1, seed: int = 0, max_turns: int = 200
    ) -> None:
        self.partner, self.state, self.seat, self.seed = partner, state, seat, seed
        self.env = MatchingEnv(max_turns=max_turns)
        self.env.reset(state)
        self.history: list[Utterance] = []

    @property
    def over(self) -> bool:
        return self.env.end is not None

    def partner_turn(self) -> str:
        private = self.env.get_private_view(self.seat)
        text = self.partner.action(View(self.seat, "", "", tuple(self.history), private, self.seed))
        self._step(self.seat, text)
        return text

    def say(self, text: str) -> str | None:
        """Someone's turn and, if the game took it and continues, the partner's reply."""
        taken = self._step(1 - self.seat, text)
        return self.partner_turn() if taken and not self.over else None

    def ask(self, *pairs: Pair) -> str:
        """The reply to a question about these pairs."""
        return self.say(f"[message] What is {' and '.join(map(self.state.roster.pair, pairs))}?") or ""

    def _step(self, seat: int, text: str) -> bool:
        _, _, info = self.env.step(text)
        if info["error"] is None or seat == self.seat:
            self.history.append(Utterance(seat, text, info["error"]))
        return info["error"] is None


def cells(state: GameState, known: bool = True, seat: int = 1) -> list[Pair]:
    """The cells that a seat sees, or those that it does not."""
    table = state.displayed(seat)
    return [(r, p) for r, row in enumerate(table) for p, value in enumerate(row) if (value is not None) == known]


def stated(texts: Iterable[str], state: GameState) -> dict[Pair, float]:
    """Values the partner told, read by the one pattern it may use."""
    found, roster = {}, state.roster
    for reviewer, paper, value in re.findall(r"(\w+ \w+) on ([A-Za-z]+): (\d+)\.", " ".join(texts)):
        found[roster.reviewers.index(reviewer), roster.short_papers.index(paper)] = int(value)
    return found


def asked_all(partner: ScriptedPartner, state: GameState, seed: int, known: bool = True) -> dict[Pair, str]:
    """The replies of one dialogue, by pair."""
    match = Match(partner, state, seed=seed)
    return {pair: match.ask(pair) for pair in cells(state, known)}
