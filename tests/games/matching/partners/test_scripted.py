from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import parse_config
from slim_rl.dialogue.players import PartnerFailure, make_partner
from slim_rl.environment import Utterance, View
from slim_rl.errors import ConfigError
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import (
    GREETINGS,
    NOTED,
    PROPOSE,
    VAGUE,
    ForthcomingPartner,
    MutePartner,
    ScriptedPartner,
    ShyPartner,
)
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.state import GameState, MatchingSettings, best_assignment

SMALL = next(generate_games(1, MatchingSettings(n=3, scales=False), seed=4))
SCALED = next(generate_games(1, MatchingSettings(n=3, scales=True), seed=4))
LARGE = next(generate_games(1, MatchingSettings(n=8, scales=True), seed=4))
KINDS = [ShyPartner, ForthcomingPartner, MutePartner]


class Match:
    """A game between a partner and someone whose words are given; keeps what the partner sees."""

    def __init__(
        self, partner: ScriptedPartner, state: GameState = SMALL, seat: int = 1, seed: int = 0, max_turns: int = 20
    ) -> None:
        self.partner, self.state, self.seat, self.seed = partner, state, seat, seed
        self.env = MatchingEnv(max_turns=max_turns)
        self.env.reset(state)
        self.history: list[Utterance] = []

    @property
    def over(self) -> bool:
        return self.env.end is not None

    def partner_turn(self) -> str:
        view = View(self.seat, "", "", tuple(self.history), self.env.get_private_view(self.seat), self.seed)
        text = self.partner.action(view)
        self._step(self.seat, text)
        return text

    def say(self, text: str) -> str | None:
        """Someone's turn and, if the game took it and continues, the partner's reply."""
        taken = self._step(1 - self.seat, text)
        return self.partner_turn() if taken and not self.over else None

    def _step(self, seat: int, text: str) -> bool:
        _, _, info = self.env.step(text)
        if info["error"] is None or seat == self.seat:
            self.history.append(Utterance(seat, text, info["error"]))
        return info["error"] is None


def names(state: GameState, pair: tuple[int, int]) -> str:
    return f"{state.roster.reviewers[pair[0]]} on {state.roster.short_papers[pair[1]]}"


def cells(state: GameState, seat: int, known: bool) -> list[tuple[int, int]]:
    return [
        (r, p) for r, row in enumerate(state.displayed(seat)) for p, v in enumerate(row) if (v is not None) == known
    ]


def stated(texts: list[str], state: GameState) -> dict[tuple[int, int], float]:
    """Values the partner told, read by the one pattern it may use."""
    pattern = re.compile(r"(\w+ \w+) on ([A-Za-z]+): (\d+)\.")
    roster = state.roster
    found = {}
    for text in texts:
        for reviewer, paper, value in pattern.findall(text):
            found[roster.reviewers.index(reviewer), roster.short_papers.index(paper)] = int(value)
    return found


@pytest.mark.parametrize("state", [SMALL, SCALED, LARGE])
def test_shy_tells_what_it_is_asked_and_what_it_lacks(state: GameState) -> None:
    known, unknown = cells(state, 1, True)[0], cells(state, 1, False)[0]
    value = state.displayed(1)[known[0]][known[1]]
    match = Match(ShyPartner(), state)
    assert match.say(f"[message] How is {names(state, known)}?") == f"[message] {names(state, known)}: {value}."
    assert match.say(f"[message] {names(state, unknown)}?") == f"[message] I have no score for {names(state, unknown)}."
    both = match.say(f"[message] What do you have for {names(state, unknown)} and {names(state, known)}?")
    assert both == f"[message] I have no score for {names(state, unknown)}. {names(state, known)}: {value}."


def test_shy_is_vague_on_general_questions() -> None:
    match = Match(ShyPartner())
    for question in ("What do you have for Ava?", "What are your best matches?", "Tell me your scores."):
        assert match.say(f"[message] {question}") in [f"[message] {text}" for text in VAGUE]


def test_one_message_cannot_have_the_whole_table() -> None:
    roster = LARGE.roster
    everything = (
        f"[message] What are your scores for {', '.join(roster.first_names)} on {', '.join(roster.short_papers)}?"
    )
    assert len(read(everything, roster).asked) == 64
    vague = [f"[message] {text}" for text in VAGUE]
    assert Match(ShyPartner(), LARGE).say(everything) in vague
    three = "[message] How is Ava Li on BLEU, GLUE and QuAC?"
    assert Match(ShyPartner(), LARGE).say(three) in vague
    answer = Match(ShyPartner(max_pairs=3), LARGE).say(three)
    assert answer is not None and all(f"Ava Li on {paper}" in answer for paper in ("BLEU", "GLUE", "QuAC"))
    assert ShyPartner(max_pairs=3).identity["max_pairs"] == 3


def test_a_question_that_is_no_sentence_is_not_answered() -> None:
    pair = names(LARGE, cells(LARGE, 1, True)[0])
    assert Match(ShyPartner(), LARGE).say(f"[message] What is for for {pair}?") in [f"[message] {v}" for v in VAGUE]
    answer = Match(ShyPartner(), LARGE).say(f"[message] {pair}?")
    assert answer is not None and answer not in [f"[message] {v}" for v in VAGUE]


def test_shy_acknowledges_statements_and_invites_proposals() -> None:
    match = Match(ShyPartner())
    assert match.say("[message] I have 62 for Ava on BLEU.") in [f"[message] {text}" for text in NOTED]
    assert match.say("[message] Should we put Ava on BLEU?") == f"[message] {PROPOSE}"


def test_stock_sentences_name_nobody() -> None:
    for text in (*GREETINGS, *VAGUE, *NOTED, PROPOSE):
        assert SMALL.roster.find(text) == []
        assert not re.search(r"\d", text)


@pytest.mark.parametrize("state", [SMALL, LARGE])
def test_forthcoming_tells_its_whole_table_once(state: GameState) -> None:
    match = Match(ForthcomingPartner(), state)
    told = match.say("[message] Hello.")
    assert told is not None
    shown = state.displayed(1)
    assert dict(read(told, state.roster).statements) == {(r, p): shown[r][p] for r, p in cells(state, 1, True)}
    unknown = cells(state, 1, False)[0]
    assert match.say(f"[message] {names(state, unknown)}?") == f"[message] I have no score for {names(state, unknown)}."
    assert match.say("[message] What else?") in [f"[message] {text}" for text in VAGUE]


def test_forthcoming_with_an_empty_table() -> None:
    blind = GameState(
        SMALL.table, SMALL.mask1, ((False,) * 3,) * 3, 1.0, 1.0, SMALL.best_assignment_reward, SMALL.roster
    )
    assert Match(ForthcomingPartner(), blind).say("[message] Hello.") == "[message] All my scores: I have no scores."


def test_mute_never_tells() -> None:
    match = Match(MutePartner(), max_turns=100)
    for r, p in cells(SMALL, 1, True):
        reply = match.say(f"[message] How is {names(SMALL, (r, p))}?")
        assert reply is not None
        assert reply.startswith("[message] ")
        assert not re.search(r"\d", reply)
        assert SMALL.roster.find(reply) == []


@pytest.mark.parametrize("kind", KINDS)
def test_opens_vaguely(kind: type[ScriptedPartner]) -> None:
    assert Match(kind(), seat=0).partner_turn() in [f"[message] {text}" for text in GREETINGS]


@pytest.mark.parametrize("kind", KINDS)
def test_accepts_the_best_plan_and_rejects_the_worst(kind: type[ScriptedPartner]) -> None:
    best = Match(kind(), LARGE)
    assert best.say(format_proposal(LARGE.best(), LARGE.roster)) == "[accept]"
    assert best.env.get_normalized_reward() == 1.0
    shown = LARGE.displayed(1)
    worst = min(
        (tuple(random.Random(i).sample(range(8), 8)) for i in range(2000)),
        key=lambda plan: sum(50 * LARGE.scale2 if (v := shown[r][p]) is None else v for r, p in enumerate(plan)),
    )
    assert Match(kind(), LARGE).say(format_proposal(worst, LARGE.roster)) == "[reject] I think we can do better."
    assert Match(kind(accept_fraction=0), LARGE).say(format_proposal(worst, LARGE.roster)) == "[accept]"


def claims(state: GameState, plan: Sequence[int]) -> str:
    """A message that claims the most for a plan's pairs and the least for all others."""
    roster, n = state.roster, state.n
    return "[message] " + "\n".join(
        f"{roster.reviewers[r]}: "
        + ", ".join(f"{roster.short_papers[p]} {999 if plan[r] == p else 1}" for p in range(n))
        for r in range(n)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_is_told_does_not_move_its_judgement(kind: type[ScriptedPartner]) -> None:
    """Plans that are best for both are accepted, and no other plan more often for what is claimed about it."""
    rng = random.Random(0)
    for state in generate_games(40, MatchingSettings(n=8, scales=True), seed=6):
        alone = [[50 * state.scale1 if value is None else value for value in row] for row in state.displayed(0)]
        for plan in (state.best(), best_assignment(alone)[0], tuple(rng.sample(range(8), 8))):
            honest, liar = Match(kind(), state), Match(kind(), state)
            assert len(read(claims(state, plan), state.roster).statements) == 64
            liar.say(claims(state, plan))
            verdict = honest.say(format_proposal(plan, state.roster))
            assert liar.say(format_proposal(plan, state.roster)) == verdict
            assert verdict == "[accept]" or plan != state.best()


def test_same_view_same_reply_and_seeds_differ() -> None:
    replies = {
        seed: [Match(ShyPartner(), seed=seed).say("[message] What do you have?") for _ in range(2)]
        for seed in range(20)
    }
    assert all(first == second for first, second in replies.values())
    assert len({first for first, _ in replies.values()}) == len(VAGUE)
    state = random.getstate()
    Match(ShyPartner()).say("[message] Hello")
    assert random.getstate() == state


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_refused_action_it_says_something_simpler(kind: type[ScriptedPartner]) -> None:
    env = MatchingEnv()
    env.reset(SMALL)
    env.step("[message] Ava on BLEU?")
    history = (Utterance(0, "[message] Ava on BLEU?"), Utterance(1, "[message] too long", error="refused"))
    text = kind().action(View(1, "", "", history, env.get_private_view(1), 0))
    assert text == f"[message] {NOTED[0]}"
    assert env.step(text)[2]["error"] is None


async def test_another_game_is_a_failure_that_says_so() -> None:
    with pytest.raises(PartnerFailure, match="matching game only"):
        await ShyPartner().act(View(1, "", "", (), None, 0))


def test_make_partner() -> None:
    for kind in ("shy", "forthcoming", "mute"):
        partner = make_partner(parse_config({"partner": {"kind": kind, "args": {"accept_fraction": 0.5}}}))
        assert partner is not None
        assert partner.identity["kind"] == kind
        assert partner.identity["accept_fraction"] == 0.5
    assert make_partner(parse_config({"partner": {"kind": "self"}})) is None  # the policy plays both seats
    with pytest.raises(ConfigError, match=r"partner\.args\.replay"):
        make_partner(parse_config({"partner": {"kind": "yoked"}}))


# --- properties: whatever the policy says

_PIECES = [
    "How is", "what about", "do you have", "tell me", "I have 62 for", "let's put", "who is best for", "is it", "?", ".", ",", "\n", "and", "or",
    "on", "for", "Ava", "Ava Li", "Daniel", "Sofia Patel", "BLEU", "Electra", "GloVe", "your scores", "please", "12", ":", "-", "and you",
]  # fmt: skip
_MESSAGES = st.one_of(st.lists(st.sampled_from(_PIECES), max_size=12).map(" ".join), st.text(max_size=60))
_PLANS = st.permutations(range(3)).map(lambda plan: format_proposal(plan, SMALL.roster))
_ACTIONS = st.lists(st.one_of(_MESSAGES.map("[message] {}".format), _MESSAGES, _PLANS), max_size=8)


@pytest.mark.parametrize("state", [SMALL, SCALED], ids=["plain", "scaled"])
@pytest.mark.parametrize("kind", KINDS)
@given(actions=_ACTIONS, seat=st.sampled_from([0, 1]), seed=st.integers(0, 2**31))
def test_every_reply_is_valid_true_and_asked_for(
    kind: type[ScriptedPartner], state: GameState, actions: list[str], seat: int, seed: int
) -> None:
    match = Match(kind(), state, seat, seed)
    replies = [match.partner_turn()] if seat == 0 else []
    heard: set[tuple[int, int]] = set()
    for action in actions:
        if match.over:
            break
        before = [utterance.text for utterance in match.history if utterance.error is None]
        reply = match.say(action)
        if reply is not None:
            heard |= set(read(action, state.roster, before).asked)
            replies.append(reply)
    assert all(utterance.error is None for utterance in match.history if utterance.seat == seat)
    values = stated(replies, state)
    shown = state.displayed(seat)
    assert all(shown[r][p] == value for (r, p), value in values.items())
    if kind is ShyPartner:
        assert set(values) <= heard
    if kind is MutePartner:
        assert not any(re.search(r"\d", reply) for reply in replies)


def test_a_single_partner_serves_many_dialogues() -> None:
    partner = ShyPartner()
    matches = [Match(partner, state) for state in (SMALL, LARGE)]
    asked = [(match, cells(match.state, 1, True)[-1]) for match in matches]
    replies = [match.say(f"[message] {names(match.state, pair)}?") for match, pair in asked]
    for (match, (r, p)), reply in zip(asked, replies, strict=True):
        assert reply == f"[message] {names(match.state, (r, p))}: {match.state.displayed(1)[r][p]}."
