"""Annotations and measures of small dialogues counted by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from slim_rl.analysis.dialogues import notes
from slim_rl.commands.show import turn_texts
from slim_rl.config import Config
from slim_rl.dialogue.measures import batch_metrics, cannot_play, measures
from slim_rl.dialogue.record import Dialogue, StopReason, Usage
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.games.matching.questions.annotate import annotate
from tests.made import MakeDialogue

ASKS = (
    "[message] What is Ava Li on Electra?",
    "[message] Ava Li on Electra: 180.",
    "[message] What is Daniel on BLEU? And Sofia on BLEU, do you see that?",
    "[message] Daniel Nguyen on BLEU is 160. I have no score for Sofia Patel on BLEU.",
    "[message] What is Ava on Electra?",
    "[message] Ava Li on Electra: 180.",
    "[propose]\nBLEU: Daniel\nElectra: Ava\nGloVe: Sofia",
    "[accept]",
)


ROWS = [json.loads(line) for line in Path(__file__).with_name("measured.jsonl").open(encoding="utf-8")]


def plain(value: Any) -> Any:
    """Returns a value as a line of `measured.jsonl` has it: to four digits, with null for NaN."""
    value = json.loads(json.dumps(value))
    return value if not isinstance(value, float) else None if math.isnan(value) else round(value, 4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " | ".join(row["said"][:3]))
def test_dialogue_is_measured_as_its_line_says(make_dialogue: MakeDialogue, row: dict[str, Any]) -> None:
    """A line has what is `said`, the dialogue's `fields`, annotations of its `turns`, and `measures`; the same again, or of its log line."""
    fields = row.get("fields", {})
    dialogue = make_dialogue(*row["said"], **fields | {"stop_reason": StopReason(fields.get("stop_reason", "agreed"))})
    for turn in dialogue.turns:
        turn.role = "policy" if turn.seat == dialogue.seat else "partner"
    for _ in range(2):
        annotate(dialogue)
        for number, facts in row.get("turns", {}).items():
            assert {name: plain(getattr(dialogue.turns[int(number)], name)) for name in facts} == facts, number
        found, expected = measures(dialogue), row.get("measures", {})
        assert {name: plain(found[name]) for name in expected} == expected
    line = json.loads(json.dumps(dialogue.to_dict(tokens=False)))
    assert Dialogue.from_dict(line).turns == dialogue.turns
    assert [*map(plain, measures(line).values())] == [*map(plain, found.values())]


def test_policy_that_cannot_play_is_named(make_dialogue: MakeDialogue) -> None:
    fails = make_dialogue("!plan", "[message] Hm.", "!plan", stop_reason=StopReason.POLICY_ERRORS, reward=0.0)
    stopped = make_dialogue("!plan", stop_reason=StopReason.PARTNER_FAILED, reward=None)
    plays = make_dialogue(*ASKS)
    assert cannot_play([]) == cannot_play([fails, plays, plays]) == cannot_play([stopped]) == ""
    assert cannot_play([fails, fails, plays]).startswith(
        "the policy cannot play this game: 2 of 3 games ended without a result (2 policy_errors, games agreed 33%). Set the game, "
    )


def test_forced_questions_are_counted_apart_and_cost_nothing(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue(*ASKS)
    dialogue.turns[0].forced = dialogue.turns[2].forced = True
    annotate(dialogue)
    row = measures(dialogue)
    counts = {"questions": 1, "questions_any": 1, "questions/pair": 1, "pairs_asked": 1, "informative_pairs": 0}
    counts |= {"questions_forced": 2, "informative_forced": 2, "messages": 1, "question_value": 0.0, "agreed": 1.0}
    assert {name: row[name] for name in counts} == counts
    config = Config().changed(train={"reward": "price", "reward_args": {"price": 0.1}})
    assert make_training_reward(config).reward(dialogue) == pytest.approx(0.9)
    charged, free = (
        make_training_reward(config.changed(train={"reward": "turn_credit", "reward_args": {"price": price}}))
        for price in (0.1, 0.0)
    )
    costs = zip(charged.turns(dialogue, 0.9).turns, free.turns(dialogue, 0.9).turns, strict=True)  # type: ignore[attr-defined]
    assert [round(one - other, 6) for one, other in costs] == [0, 0, -0.1, 0.1]
    assert "forced, pair, answered, informative" in "".join(map(str, turn_texts(dialogue)))
    assert next(notes(dialogue.turns[0])) == "forced"


def test_batch_metrics(make_dialogue: MakeDialogue) -> None:
    failed = make_dialogue(ASKS[0], reward=None, stop_reason=StopReason.PARTNER_FAILED)
    silent = make_dialogue("[message] Hi.", "[message] Hi.", reward=0.0, stop_reason=StopReason.MAX_TURNS)
    batch = [make_dialogue(*ASKS), silent, failed]
    for dialogue in batch:
        annotate(dialogue)
    metrics = batch_metrics(batch)
    expected = {
        **dict.fromkeys(("questions", "questions/pair", "pairs_asked", "questions_any"), 1.5),
        **dict.fromkeys(("reward", "agreed", "partner_seconds_p50"), 0.5),
        **dict.fromkeys(("answered", "informative_pairs", "failure/partner_failed"), 1.0),  # of the one that asked
        "questions/check": 0.0,
        "malformed": 0.0,
        "failed": 1 / 3,
        "stop/agreed": 1 / 3,
        "turns_p50": 5.0,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected) and "cost_usd" not in metrics
    assert all(isinstance(value, float) for value in metrics.values())
    assert batch_metrics([]) == {} and batch_metrics([failed])["failed"] == 1.0
    for turn, retries in zip(batch[0].turns[1::2], (1, 0), strict=False):
        turn.usage = Usage(calls=1, retries=retries, input_tokens=1000, cached_tokens=750, cost_usd=0.25)
    metrics = batch_metrics(batch[:1])
    assert (metrics["cost_usd"], metrics["partner_retries"], metrics["partner_cached"]) == (0.5, 0.5, 0.75)


def test_any_game_with_annotations_is_measured(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue("[guess] red?", "[answer] yes", "[guess] red?", game_state={"code": "red"})
    first, reply, again = dialogue.turns
    for turn, seeking in ((first, True), (reply, False), (again, True)):
        turn.questions, turn.seeking = ["colour"] if seeking else [], seeking
        turn.pairs, turn.informative, turn.malformed = [(3,)] if seeking else [], [], seeking
    first.proposes = again.proposes = True
    again.action, again.error = None, "Guess once."
    first.informative, first.answered, first.question_value = [(3,)], True, 0.5
    row = measures(dialogue)
    counts = {"questions": 2, "questions/colour": 2, "questions/pair": 0, "pairs_asked": 1, "repeats": 1}
    assert {name: row[name] for name in counts} == counts
    assert (row["informative_pairs"], row["answered"], row["question_value"], row["malformed"]) == (1, 0.5, 0.5, 2)
    assert row["valid_proposals"] == 0.5
    assert batch_metrics([dialogue])["questions/colour"] == 2.0
