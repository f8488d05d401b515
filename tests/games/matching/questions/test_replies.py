"""What a reply makes of the message before it, and that a score told in answer to a message was asked for, however it is worded."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as draw

from slim_rl.dialogue.measures import measures
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.partners.scripted import ForthcomingPartner, MutePartner, ShyPartner
from slim_rl.games.matching.questions.answers import answers, refused, stated, stated_pairs
from slim_rl.games.matching.questions.value import Knowledge
from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Roster
from slim_rl.measured import measured
from tests.games.matching.questions.told_setup import ALL, GAME, MANY, in_turn, learnable, play, worded

ROSTER = Roster.default()
ROWS, ANSWERS = (
    [json.loads(line) for line in Path(__file__).with_name(f"{name}.jsonl").open(encoding="utf-8")]
    for name in ("replies", "answers")
)
PARTNERS = {"shy": ShyPartner, "mute": MutePartner, "forthcoming": ForthcomingPartner}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['said'][0]} | {row['by']}")
def test_reply_makes_of_messages_what_its_line_says(row: dict[str, Any]) -> None:
    """A line has what is `said`, `by` whom it is answered, a scripted partner or one with these replies, and the `measures`."""
    by = row["by"]
    partner = PARTNERS[by]() if isinstance(by, str) else in_turn([*map(worded, by)])
    dialogue = play([*map(worded, row["said"])], partner)
    found, expected = measures(dialogue), row["measures"]
    assert {name: found[name] for name in expected} == {
        name: len(learnable(GAME)) if value == "all" else value for name, value in expected.items()
    }
    first = dialogue.turns[0]
    assert (first.question_value is None) == (not first.seeking)


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row["reply"])
def test_reply_is_read_as_its_line_says(row: dict[str, Any]) -> None:
    """A line has the pairs that were `asked` about, the `reply`, and which it answers, refuses, or the `values` that it states."""
    firsts, shorts, reply = ROSTER.first_names, ROSTER.short_papers, row["reply"]
    asked = [(firsts.index(first), shorts.index(short)) for first, _, short in (s.partition("/") for s in row["asked"])]
    made = {
        "answers": {f"{firsts[r]}/{shorts[p]}": kind for (r, p), kind in answers(asked, reply, ROSTER).items()},
        "refused": [f"{firsts[r]}/{shorts[p]}" for r, p in refused(asked, reply, ROSTER)],
        "values": [value for _, value in stated(asked, reply, ROSTER)],
        "stated": [f"{firsts[r]}/{shorts[p]}" for r, p in stated_pairs(asked, reply, ROSTER)],
    }
    assert {name: made[name] for name in made if name in row} == {name: row[name] for name in made if name in row}


def test_what_was_refused_has_no_value_and_what_was_vague_may() -> None:
    """A partner that keeps a score to itself will keep it: to ask again is not the best question for ever."""
    knowledge = Knowledge(GAME, 0)
    best = max(learnable(GAME), key=lambda pair: knowledge.expected_value[pair])
    refused = play([f"What is {GAME.roster.pair(best)}?"] * 2, ShyPartner(answers=0.0))
    assert refused.turns[0].regret == 0 and (refused.turns[2].regret or 0) > 0
    vague = play([worded("What is {a}, {b} and {c} on {x}, {y} and {z}?")] * 2, ShyPartner())
    assert vague.turns[0].regret == vague.turns[2].regret


def test_every_wording_that_the_partner_answers_is_a_question() -> None:
    assert len(ALL) >= 60
    answered = 0
    for wording in ALL:
        said = worded(wording)
        dialogue = play([said], ShyPartner(max_pairs=MANY))
        question, reply = dialogue.turns
        told = set(reply.stated or ())
        assert told <= set(question.pairs or ()) and bool(told) <= bool(question.seeking), wording
        row = measures(dialogue)
        assert row["pairs_volunteered"] == 0 and row["informative_pairs"] == len(told & set(learnable(GAME))), wording
        answered += bool(told)
        if read(said, GAME.roster).asked:
            assert measured(MatchingEnv).asks(f"[message] {said}"), wording
    assert answered >= 60
    assert not any(map(measured(MatchingEnv).asks, ("[message] Hello.", "[propose]\nBLEU: Ava Li")))


def test_nine_comparisons_are_nine_questions() -> None:
    pairs = map(GAME.roster.pair, learnable(GAME)[:10])
    row = measures(play([f"Compare {one} with {other}" for one, other in pairwise(pairs)], ShyPartner()))
    assert (row["questions"], row["pairs_volunteered"], row["informative_pairs"]) == (9, 0, 10)


LISTS = yaml.safe_load(Path(__file__).with_name("parts.yaml").read_text(encoding="utf-8"))
PARTS = draw.tuples(*map(draw.sampled_from, LISTS.values())).map("".join)


@settings(max_examples=120)
@given(draw.lists(PARTS, min_size=1, max_size=5), draw.sampled_from([(MANY, 1.0), (4, 0.7)]), draw.integers(0, 99))
def test_every_combination_that_is_answered_is_a_question(said: list[str], kind: tuple[int, float], seed: int) -> None:
    """In whole dialogues with any shy partner."""
    messages = [worded(text, at=seed + 3 * number) for number, text in enumerate(said)]
    dialogue = play(messages, ShyPartner(max_pairs=kind[0], answers=kind[1]), seed=seed)
    row = measures(dialogue)
    told = {pair for turn in dialogue.turns for pair in turn.stated or () if turn.role == "partner"}
    assert row["pairs_volunteered"] == 0
    assert row["informative_pairs"] == len(told & set(learnable(GAME)))
    assert set(dialogue.turns[1].stated or ()) <= set(dialogue.turns[0].pairs or ())
