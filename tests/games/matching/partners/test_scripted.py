"""Scripted partners: what they tell, in which words, at which dose, and which plans they accept."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import parse_config
from slim_rl.dialogue.players import PartnerFailure, make_partner
from slim_rl.environment import Utterance, View
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.env import MatchingEnv, MatchingView
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.judging import estimates, judge
from slim_rl.games.matching.partners.scripted import (
    GREETINGS,
    NOTED,
    PROPOSE,
    SILENT,
    VAGUE,
    ForthcomingPartner,
    MutePartner,
    ScriptedPartner,
    ShyPartner,
)
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import PAPERS, REVIEWERS, Roster
from slim_rl.games.matching.state import GameState, MatchingSettings, best_assignment
from tests.games.matching.partners.match import LARGE, SCALED, SMALL, Match, asked_all, cells, stated

KINDS = {"shy": ShyPartner, "forthcoming": ForthcomingPartner, "mute": MutePartner}
ROWS = [json.loads(line) for line in Path(__file__).with_name("replies.jsonl").open(encoding="utf-8")]
STOCK = {"VAGUE": VAGUE, "NOTED": NOTED, "SILENT": SILENT, "PROPOSE": (PROPOSE,)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['partner']} {row['says'][0]}")
def test_reply_is_that_of_its_line(row: dict[str, Any]) -> None:
    """A line has the `partner`, its `args`, whether it is `blind`, what it is told and what it `replies`: a text, or one of a kind."""
    for state in (SMALL, SCALED, LARGE):
        names, papers, shown = state.roster.reviewers, state.roster.short_papers, state.displayed(1)
        (r, p), unknown = cells(state)[0], cells(state, False)[0]
        words = {"known": state.roster.pair((r, p)), "unknown": state.roster.pair(unknown), "value": shown[r][p]}
        words |= {"reviewers": ", ".join(names), "papers": ", ".join(papers)}
        blind = replace(state, mask2=((False,) * state.n,) * state.n)
        match = Match(KINDS[row["partner"]](**row.get("args", {})), blind if row.get("blind") else state)
        for says, reply in zip(row["says"], row["replies"], strict=True):
            found = (match.say(f"[message] {says.format(**words)}") or "").removeprefix("[message] ")
            if reply.endswith("{table}"):
                assert found.startswith(reply.removesuffix("{table}"))
                assert dict(read(found, state.roster).statements) == {(r, p): shown[r][p] for r, p in cells(state)}
            else:
                assert found in STOCK.get(reply, (reply.format(**words),)), says


def test_stock_sentences_and_the_prompts_examples_name_nobody() -> None:
    prompt = (resources.files("slim_rl.games.matching.partners") / "shy_prompt.md").read_text()
    assert "Mina" in prompt and Roster(REVIEWERS, PAPERS).find(prompt) == []
    for text in (*GREETINGS, *VAGUE, *NOTED, *SILENT, PROPOSE):
        assert SMALL.roster.find(text) == [] and not re.search(r"\d", text)


@pytest.mark.parametrize("kind", KINDS.values())
def test_opening_is_vague_and_after_a_refusal_simpler(kind: type[ScriptedPartner]) -> None:
    assert Match(kind(), seat=0).partner_turn() in [f"[message] {text}" for text in GREETINGS]
    env = MatchingEnv()
    env.reset(SMALL)
    env.step("[message] Ava on BLEU?")
    history = (Utterance(0, "[message] Ava on BLEU?"), Utterance(1, "[message] too long", error="refused"))
    text = kind().action(View(1, "", "", history, env.get_private_view(1), 0))
    assert text == f"[message] {NOTED[0]}" and env.step(text)[2]["error"] is None


def test_same_view_same_reply_and_seeds_differ() -> None:
    def reply(seed: int) -> str | None:
        return Match(ShyPartner(), seed=seed).say("[message] What do you have?")

    state = random.getstate()
    assert all(reply(seed) == reply(seed) for seed in range(20))
    assert len({reply(seed) for seed in range(20)}) == len(VAGUE)
    assert random.getstate() == state
    partner = ShyPartner()  # one serves many dialogues
    matches = [Match(partner, state) for state in (SMALL, LARGE)]
    replies = [match.ask(cells(match.state)[-1]) for match in matches]
    assert [list(stated([reply], match.state)) for match, reply in zip(matches, replies, strict=True)] == [
        [cells(match.state)[-1]] for match in matches
    ]


@pytest.mark.parametrize("kind", ["shy", "forthcoming", "mute", "erring", "rephrased"])
async def test_config_names_a_partner_of_the_matching_game(kind: str) -> None:
    args = {"accept_fraction": 0.5} | ({} if kind == "mute" else {"answers": 0.25})
    partner = make_partner(parse_config({"partner": {"kind": kind, "args": args}}))
    assert partner is not None and partner.identity.items() >= {"kind": kind, **args}.items()
    with pytest.raises(PartnerFailure, match="matching game only"):
        await partner.act(View(1, "", "", (), None, 0))
    assert make_partner(parse_config({"partner": {"kind": "self"}})) is None


# --- wordings and doses


@pytest.mark.parametrize("wordings", [1, 3, 8])
def test_wordings_are_the_first_so_many(wordings: int) -> None:
    partner, shown, heard = ShyPartner(wordings=wordings), SMALL.displayed(1), set()
    assert asked_all(partner, SMALL, 0) == asked_all(partner, SMALL, 0), "a dialogue hears the same words again"
    for seed in range(60):
        for (r, p), reply in asked_all(partner, SMALL, seed).items():
            text = reply.removeprefix("[message] ").replace(SMALL.roster.pair((r, p)), "{names}")
            heard.add(text.replace(f"{shown[r][p]}", "{value}"))
    assert heard == set(ShyPartner.score_sentences[:wordings]) and len(heard) == wordings


PAIRS = [(r, p) for r in range(3) for p in range(3)]
TRUE = {pair: Match(ShyPartner()).ask(pair).removeprefix("[message] ") for pair in PAIRS}


def answered(chance: float, seed: int) -> set[tuple[int, int]]:
    """The pairs that a partner answers for in one dialogue, however often asked; its other replies state nothing."""
    match, found = Match(ShyPartner(answers=chance), seed=seed), set()
    for pair in PAIRS:
        replies = {match.ask(pair).removeprefix("[message] ") for _ in range(2)}
        assert replies == {TRUE[pair]} or replies <= set(SILENT)
        found |= {pair} if TRUE[pair] in replies else set()
    return found


def test_dose_is_the_share_that_is_answered() -> None:
    chances = (0.0, 0.25, 0.5, 0.75, 1.0)
    found = [[answered(chance, seed) for chance in chances] for seed in range(100)]
    assert all(less <= more for some in found for less, more in pairwise(some))
    shares = [sum(len(some[number]) for some in found) / (100 * len(PAIRS)) for number in range(5)]
    assert shares == pytest.approx(chances, abs=0.05) and (shares[0], shares[-1]) == (0, 1)


def test_of_two_pairs_it_may_answer_one() -> None:
    replies = [Match(ShyPartner(answers=0.5), seed=seed).ask((0, 0), (1, 1)) for seed in range(40)]
    assert {sum(TRUE[pair] in reply for pair in ((0, 0), (1, 1))) for reply in replies} == {0, 1, 2}
    assert all(any(silent in reply for silent in SILENT) for reply in replies if TRUE[0, 0] not in reply)


# --- judgement of plans


def view(table: Sequence[Sequence[int | None]], scale: float = 1.0) -> MatchingView:
    rows = tuple(map(tuple, table))
    return MatchingView(seat=1, roster=Roster.default(len(rows)), table=rows, scale=scale, pending=None, turns_left=10)


def test_plan_is_measured_by_the_own_best_plan() -> None:
    assert estimates(view([[90, None], [None, 10]])) == ((90, 50), (50, 10))
    assert estimates(view([[900, None], [None, 100]], scale=10.0)) == ((900, 500), (500, 100))
    game = view([[90, None], [None, 50]])  # best 140, the other plan 100
    assert judge(game, (0, 1), 1.0).accepts
    verdict = judge(game, (1, 0), 0.75)
    assert (verdict.value, verdict.best, verdict.accepts) == (100, 140, False)
    assert judge(game, (1, 0), 100 / 140).accepts and judge(view([[99, 0], [0, 99]]), (1, 0), 0.0).accepts


@pytest.mark.parametrize("n", [3, 8])
def test_own_best_plan_is_accepted_at_any_fraction(n: int) -> None:
    for state in generate_games(300, MatchingSettings(n=n, hardness=0, scales=True), seed=3):
        game = view(state.displayed(1), state.scale(1))
        assert judge(game, best_assignment(estimates(game))[0], 1.0).accepts


@pytest.mark.parametrize("scales", [False, True])
def test_acceptance_on_8x8(scales: bool) -> None:
    """0.75 accepts every pooled-optimal plan, few of the other seat's own plans, and a good third of random ones."""
    rng = random.Random(0)
    pooled, other, chance = [], [], []
    for state in generate_games(60, MatchingSettings(n=8, scales=scales), seed=2):
        for seat in (0, 1):
            game, its = (view(state.displayed(each), state.scale(each)) for each in (seat, 1 - seat))
            pooled.append(judge(game, state.best(), 0.75).accepts)
            other.append(judge(game, best_assignment(estimates(its))[0], 0.75).accepts)
            chance.append(judge(game, tuple(rng.sample(range(8), 8)), 0.75).accepts)
    assert all(pooled) and sum(other) / len(other) < 0.2
    assert 0.2 < sum(chance) / len(chance) < 0.55


def claims(state: GameState, plan: Sequence[int]) -> str:
    """A message that claims the most for a plan's pairs and the least for all others."""
    roster, n = state.roster, state.n
    lines = (", ".join(f"{roster.short_papers[p]} {999 if plan[r] == p else 1}" for p in range(n)) for r in range(n))
    return "[message] " + "\n".join(f"{name}: {line}" for name, line in zip(roster.reviewers, lines, strict=True))


@pytest.mark.parametrize("kind", KINDS.values())
def test_what_it_is_told_does_not_move_its_judgement(kind: type[ScriptedPartner]) -> None:
    """The best plan is accepted, the worst is not unless all are, and none more often for what is claimed about it."""
    rng, rejected = random.Random(0), 0
    for state in generate_games(20, MatchingSettings(n=8, scales=True), seed=6):
        own, its = (view(state.displayed(seat), state.scale(seat)) for seat in (1, 0))
        worst = best_assignment([[-value for value in row] for row in estimates(own)])[0]
        for plan in (state.best(), best_assignment(estimates(its))[0], worst, tuple(rng.sample(range(8), 8))):
            honest, liar = Match(kind(), state), Match(kind(), state)
            assert len(read(claims(state, plan), state.roster).statements) == 64
            liar.say(claims(state, plan))
            proposal = format_proposal(plan, state.roster)
            verdict = honest.say(proposal)
            assert liar.say(proposal) == verdict and verdict in ("[accept]", "[reject] I think we can do better.")
            assert Match(kind(accept_fraction=0), state).say(proposal) == "[accept]"
            rejected += verdict != "[accept]"
            assert {state.best(): "[accept]", worst: "[reject] I think we can do better."}.get(plan, verdict) == verdict
    assert rejected > 20


# --- properties: whatever the policy says

_PIECES = [
    "How is", "what about", "do you have", "tell me", "I have 62 for", "let's put", "who is best for", "is it", "?", ".", ",", "\n", "and", "or",
    "on", "for", "Ava", "Ava Li", "Daniel", "Sofia Patel", "BLEU", "Electra", "GloVe", "your scores", "please", "12", ":", "-", "and you",
]  # fmt: skip
_MESSAGES = st.one_of(st.lists(st.sampled_from(_PIECES), max_size=12).map(" ".join), st.text(max_size=60))
_PLANS = st.permutations(range(3)).map(lambda plan: format_proposal(plan, SMALL.roster))
_ACTIONS = st.lists(st.one_of(_MESSAGES.map("[message] {}".format), _MESSAGES, _PLANS), max_size=8)


@pytest.mark.parametrize("state", [SMALL, SCALED], ids=["plain", "scaled"])
@pytest.mark.parametrize("kind", KINDS.values())
@given(actions=_ACTIONS, seat=st.sampled_from([0, 1]), seed=st.integers(0, 2**31))
def test_every_reply_is_valid_true_and_asked_for(
    kind: type[ScriptedPartner], state: GameState, actions: list[str], seat: int, seed: int
) -> None:
    match = Match(kind(), state, seat, seed, max_turns=20)
    replies = [match.partner_turn()] if seat == 0 else []
    heard: set[tuple[int, int]] = set()
    for action in actions:
        if match.over:
            break
        before = [utterance.text for utterance in match.history if utterance.error is None]
        if (reply := match.say(action)) is not None:
            heard |= set(read(action, state.roster, before).asked)
            replies.append(reply)
    assert all(utterance.error is None for utterance in match.history if utterance.seat == seat)
    values, shown = stated(replies, state), state.displayed(seat)
    assert all(shown[r][p] == value for (r, p), value in values.items())
    if kind is ShyPartner:
        assert set(values) <= heard
    if kind is MutePartner:
        assert not any(re.search(r"\d", reply) for reply in replies)
