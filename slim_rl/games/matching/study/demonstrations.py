"""Scripted player whose games a tiny model learns from.

It asks a varying, mostly small number of questions, then proposes its best plan. It knows its own cells and what it learned; an unknown
cell counts as the mean. How many questions it asks, and of which kind, is drawn per game and does not depend on the game. A model trained
on it can ask but has no reason to: that is left to reinforcement learning.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from slim_rl.config import Config
from slim_rl.dialogue.record import Turn
from slim_rl.environment import View
from slim_rl.games.matching.generate import VALUES, board_for
from slim_rl.games.matching.partners.scripted import SENTENCES
from slim_rl.games.matching.prompt import table_lines
from slim_rl.games.matching.roster import Pair, Roster
from slim_rl.games.matching.state import KINDS, UNSEEN_VALUE, GameState, MatchingView, best_assignment, rows_of
from slim_rl.games.matching.study.aided import learned_in
from slim_rl.games.matching.study.players import Player, best_question, best_score
from slim_rl.measured import Curriculum, Lesson
from slim_rl.seeds import seed_of

# Chance of 0, 1, 2, ... messages before the first proposal.
MESSAGES = (0.40, 0.27, 0.17, 0.09, 0.05, 0.02)

ASK_PAIR, ASK_OPEN, TELL = (SENTENCES[name] for name in ("ask_pair", "ask_open", "tell"))
# With several, the model has already met that of a control arm.
PARTNERS = {"shy": 0.6, "forthcoming": 0.2, "mute": 0.2}


class QuestioningPlayer(Player):
    """Plays the policy's seat. The same view gives the same action.

    Where the game works plans out (`MatchingView.solver`) it proposes without one.

    Args:
        messages: the chance of 0, 1, 2, ... messages before the first proposal.
        kinds, thinks, ask_about_plan_share, cost_aware_share: as in `PlayerSettings`. What it thinks before every turn holds what it asked in vain too.

    Examples:
        One question about a pair, then a proposal; or a proposal at once, just as often:

        >>> QuestioningPlayer(messages=(0.5, 0.5), kinds={"pair": 1}).identity
        {'kind': 'questioning', 'messages': [0.5, 0.5], 'kinds': {'pair': 1}}
    """

    def __init__(
        self,
        messages: Sequence[float] = MESSAGES,
        kinds: Mapping[Any, float] = KINDS,
        thinks: Literal["plan", "turn", "never"] = "plan",
        ask_about_plan_share: float = 0.0,
        cost_aware_share: float = 0.0,
    ) -> None:
        super().__init__("questioning", persists=True, listens=True)
        self.messages, self.kinds, self.thinks = messages, kinds, thinks
        self.ask_about_plan_share, self.cost_aware_share = ask_about_plan_share, cost_aware_share

    @property
    def identity(self) -> dict[str, Any]:
        return {"kind": self.name, "messages": list(self.messages), "kinds": dict(self.kinds)}

    async def act(self, view: View) -> Turn:
        action = self.action(view)
        return Turn(action, thought="\n".join(self._thought(view, action)) or None)

    def _thought(self, view: View, action: str) -> list[str]:
        game: MatchingView = view.private
        if self.thinks == "turn":
            return learned_in(view).lines(game.table, game.roster)
        plans_itself = self.thinks == "plan" and action.startswith("[propose]\n")
        return table_lines(game.roster, learned_in(view).fill(game.table)) if plans_itself else []

    def action(self, view: View) -> str:
        text = super().action(view)
        return "[propose]" if view.private.solver and text.startswith("[propose]") else text

    def message(self, view: View, number: int) -> str | None:
        """Returns the next message; None if it proposes, no pair is left to ask about, or asking costs too much."""
        rng = random.Random(view.seed)
        planned = rng.choices(range(len(self.messages)), self.messages)[0]
        # whether it asks about pairs of its best plan while one is left, and only while the best question is worth its cost
        aims, minds = rng.random() < self.ask_about_plan_share, rng.random() < self.cost_aware_share
        if number >= planned:
            return None
        rng = random.Random(f"{view.seed}/{len(view.history)}")
        game: MatchingView = view.private
        kind = rng.choices(list(self.kinds), list(self.kinds.values()))[0]
        forms: Sequence[str] = ASK_OPEN
        pair = rng.choice(game.pairs)
        if kind == "tell" and game.seen:
            forms, pair = TELL, rng.choice(game.seen)
        elif kind != "open":
            asked = learned_in(view).asked
            left = [pair for pair in game.unseen if pair not in asked]
            # not if even the best question costs more than its answer is expected to gain
            if not left or (minds and view.price and best_question(view)[1] <= view.price * best_score(view)):
                return None
            aim = set(enumerate(self.plan(view))) if aims else set[Pair]()
            forms, pair = ASK_PAIR, rng.choice([pair for pair in left if pair in aim] or left)
        reviewer, paper = game.roster.names(pair)
        return rng.choice(forms).format(value=game[pair], reviewer=reviewer, paper=paper)


def curriculum(config: Config) -> Curriculum:
    """Yields demonstrations, and lessons in which much is seen, asked or answered, or little is left to ask.

    The tokenizer knows every number that a score can be.
    """
    settings, player = config.warmstart, config.warmstart.player
    shares, kinds, thinks = settings.partners or PARTNERS, player.kinds, player.thinks
    asking = QuestioningPlayer((0.0, *settings.messages[1:]), {"pair": 1.0}, thinks)
    seen = QuestioningPlayer((1.0,), thinks=thinks)
    informed = QuestioningPlayer((0.0, 1.0), kinds, thinks)
    return Curriculum(
        demonstrations=Lesson(QuestioningPlayer(settings.messages, **player.model_dump()), shares),
        lessons={
            "seen": Lesson(seen, {"shy": 1.0}, 44_000, False, lambda number: _tables(config, number)),
            "asked": Lesson(asking, {"shy": 1.0}, 26_000, opening=False),
            "told": Lesson(informed, {"forthcoming": 1.0}, 4_000, opening=False),
            "gaps": Lesson(asking, {"shy": 1.0}, 0, opening=False, deals=lambda number: _gaps(config, number)),
        },
        speaker=QuestioningPlayer(kinds=kinds, thinks=thinks),
        words=(f" {number}" for number in range(100) for _ in range(50)),
    )


def _tables(config: Config, number: int) -> Iterator[tuple[str, GameState]]:
    """Yields random tables of any hardness; the seat sees a share between 0.2 and 1, the partner nothing."""
    rng = np.random.default_rng(seed_of(config.seed, "tables"))
    for _ in range(number):
        board, roster = board_for(config.game, rng)
        n = board.n
        seen = rng.random((n, n)) < rng.uniform(0.2, 1.0)
        table = np.where(seen, rng.integers(0, VALUES, (n, n)), UNSEEN_VALUE)
        yield _dealt(table, seen, np.zeros_like(seen), roster)


def _gaps(config: Config, number: int) -> Iterator[tuple[str, GameState]]:
    """Yields random tables of which the seat lacks one cell to a half, few more often; the partner has those.

    If nearly nothing is seen, a question drawn among all pairs is nearly as likely as one drawn among unseen pairs, so that a model rarely
    learns the difference.
    """
    rng = np.random.default_rng(seed_of(config.seed, "gaps"))
    for _ in range(number):
        board, roster = board_for(config.game, rng)
        n = board.n
        unseen = rng.permutation(n * n) < int(np.exp(rng.uniform(0, np.log(n * n / 2))))
        seen = ~unseen.reshape(n, n)
        yield _dealt(rng.integers(0, VALUES, (n, n)), seen, ~seen, roster)


def _dealt(
    table: NDArray[np.int_], seen: NDArray[np.bool_], partners: NDArray[np.bool_], roster: Roster
) -> tuple[str, GameState]:
    best = int(best_assignment(table)[1])
    state = GameState(rows_of(table), rows_of(seen), rows_of(partners), 1.0, 1.0, best, roster)
    return state.id, state
