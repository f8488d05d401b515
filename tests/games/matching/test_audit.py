"""The audit: the scripted partners come out as what they are, and each fault is found where it was put."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_rl.config import parse_config
from slim_rl.dialogue.players import make_partner
from slim_rl.dialogue.record import Dialogue, StopReason, Turn, Usage
from slim_rl.environment import View
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.env import MatchingEnv, MatchingView
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.roster import Roster
from slim_rl.games.matching.state import GameState, MatchingSettings
from slim_rl.games.matching.study.audit import CHECKS, audit, stated
from tests.dialogue.players import Says
from tests.made import played

ASKS = Path(__file__).with_name("asks.txt").read_text(encoding="utf-8").splitlines()


def talk(view: View) -> str:
    """All kinds of messages, now and then a plan, good or bad, or a mistake."""
    game = view.private
    assert isinstance(game, MatchingView)
    rng = random.Random(f"{view.seed} {len(view.history)}")
    if rng.random() < 0.1:
        return "no tag at all"
    if len(view.history) > 8 or rng.random() < 0.1:
        return format_proposal(rng.sample(range(game.roster.n), game.roster.n), game.roster)
    roster = game.roster
    lists = {"r": roster.reviewers, "f": roster.first_names, "g": roster.first_names, "p": roster.short_papers}
    lists |= {"q": roster.short_papers, "v": range(100)}
    words = {name: rng.choice(of) for name, of in lists.items()}  # type: ignore[arg-type]
    return "[message] " + rng.choice(ASKS).format(**words)


def audited(kind: str) -> tuple[Counter[str], Counter[str]]:
    """Faults and cases of a partner, over many games."""
    partner, faults, cases = make_partner(parse_config({"partner": {"kind": kind}})), Counter[str](), Counter[str]()
    small = generate_games(60, MatchingSettings(n=3, scales=False), seed=1)
    for seed, game in enumerate([*small, *generate_games(15, MatchingSettings(n=8), seed=2)]):
        dialogue = played(MatchingEnv(max_turns=14), Says(talk), partner, game, seat=seed % 2, seed=seed)
        for name, (fault, number) in audit(dialogue).items():
            faults[name] += fault
            cases[name] += number
    return faults, cases


def test_scripted_partners_come_out_as_what_they_are() -> None:
    faults, cases = audited("shy")
    assert faults == dict.fromkeys(CHECKS, 0) and all(cases[name] >= 15 for name in CHECKS), cases
    faults, cases = audited("forthcoming")
    assert faults["leak"] > 50 and faults["not_vague"] > 0 and cases["false_value"] > 200
    assert not any(faults[name] for name in ("false_value", "bad_accept", "malformed", "unread"))
    faults, cases = audited("mute")
    assert faults["refusal"] == cases["refusal"] > 30
    assert {name for name in faults if name != "unread" and faults[name]} == {"refusal"}


# --- faults put in by hand. Seat 1, the partner, sees Ava 60 and Daniel 30 on BLEU, and nothing of Electra; seat 0 sees the rest.

GAME = GameState(
    table=((60, 80), (30, 10)),
    mask1=((False, True), (False, True)),
    mask2=((True, False), (True, False)),
    scale1=1.0,
    scale2=1.0,
    best_assignment_reward=110,
    roster=Roster.default(2),
)
ASK = "[message] What do you have for Ava Li on BLEU?"
OPEN = "[message] Who is good on BLEU?"
GOOD = "[propose]\nBLEU: Daniel Nguyen\nElectra: Ava Li"


def dialogue(*said: str, malformed: int = 0, **fields: Any) -> Dialogue:
    """What seat 0 (the policy) and seat 1 said in turn."""
    env = MatchingEnv()
    env.reset(GAME)
    turns = []
    for text in said:
        seat = env.turn
        _, _, info = env.step(text)
        usage, role = (Usage(malformed=malformed), "partner") if seat == 1 else (None, "policy")
        turns.append(Turn(text, seat, role, info["action"], info["error"], usage=usage))
    partner = {"kind": "openai"} | fields.pop("partner", {})
    return Dialogue("d", "g", 0, 0, GAME.to_dict(), {}, partner, turns=turns, **fields)


def faults(*said: str, **fields: Any) -> dict[str, int]:
    return {name: found for name, (found, _) in audit(dialogue(*said, **fields)).items() if found}


ROWS = [json.loads(line) for line in Path(__file__).with_name("audit.jsonl").open(encoding="utf-8")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["said"][-1])
def test_each_fault_is_found_where_it_is(row: dict[str, Any]) -> None:
    assert faults(*row["said"]) == row["faults"]


def test_the_threshold_is_the_partners_own() -> None:
    said = (GOOD, "[accept]")
    assert faults(*said, partner={"accept_fraction": 0.75}) == {"bad_accept": 1}
    assert faults(*said, partner={"accept_fraction": 0.5}) == {}


def test_replies_that_the_partner_took_back_itself_count() -> None:
    assert audit(dialogue(ASK, "[message] 60.", malformed=2))["malformed"] == (2, 3)
    given_up = dialogue(ASK, stop_reason=StopReason.PARTNER_ERRORS, partner={"malformed_retries": 2})
    assert audit(given_up)["malformed"] == (3, 3)


def test_numbers_in_names_are_no_statements() -> None:
    roster = Roster(("R2 D2", "C 3PO"), ("Paper 10", "Paper 20"))
    claims, numbers = stated("[message] R2 D2 on Paper 10: 55.", roster)
    assert claims == [((0, 0), 55.0)] and numbers == [55.0]


WORDS = st.text(max_size=60) | st.sampled_from([ASK, OPEN, GOOD, "[accept]", "[message] 60 Ava BLEU 7"])


@given(st.lists(WORDS, max_size=6))
def test_no_words_whatever_raise(said: list[str]) -> None:
    assert audit(dialogue(*said))
