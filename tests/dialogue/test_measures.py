"""Annotations and measures of small dialogues counted by hand."""

from __future__ import annotations

import json
import math

import pytest

from slim_rl.analysis.dialogues import notes
from slim_rl.commands.screen import turn_texts
from slim_rl.config import Config
from slim_rl.dialogue.measures import batch_metrics, cannot_play, measures
from slim_rl.dialogue.record import Dialogue, StopReason, Usage
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.games.matching.questions import annotate
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


def test_questions_pairs_answers_and_worth(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue(*ASKS)
    annotate(dialogue)
    first, reply, second, both, again, _, plan, accept = dialogue.turns
    assert (first.questions, first.pairs, first.answered, first.seeking) == (["pair"], [(0, 1)], True, True)
    # from 180 on the diagonal to 90 + 50 + 60
    assert (first.question_value, first.gain) == pytest.approx(
        (20 / 230, 50 / 230), abs=1e-5
    ) and first.regret is not None
    assert (reply.questions, reply.stated, reply.question_value, reply.seeking) == ([], [(0, 1)], None, False)
    assert (second.pairs, second.question_value) == ([(1, 0), (2, 0)], pytest.approx(30 / 230, abs=1e-5))
    assert [turn.informative for turn in (first, second, again)] == [[(0, 1)], [(1, 0)], []]
    assert (both.stated, again.question_value) == ([(1, 0)], 0.0)
    assert plan.questions == accept.questions == []


def test_measures_count_by_hand(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue(*ASKS)
    annotate(dialogue)
    row = measures(dialogue)
    counts = {
        "questions": 3, "questions_any": 3, "questions/pair": 3, "questions/open": 0, "pairs_asked": 3,
        "informative_pairs": 2, "repeats": 1,
    }  # fmt: skip
    counts |= {"messages": 3, "proposals": 1, "turns": 8, "errors": 0, "words": 6 + 13 + 5 + 6}
    assert {name: row[name] for name in counts} == counts
    assert row["question_value"] == pytest.approx(50 / 230, abs=1e-5)
    assert row["answered"] == row["valid_proposals"] == row["agreed"] == row["reward"] == 1.0
    assert row["stop_reason"] == "agreed"
    assert row["questions_per_message"] == 1.0
    assert row["questions_per_100_words"] == pytest.approx(300 / float(row["words"]))


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
    assert "forced, pair, informative" in "".join(map(str, turn_texts(dialogue)))
    assert next(notes(dialogue.turns[0])) == "forced"


def test_which_pairs_were_asked_about(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue(
        *ASKS[:2],
        "[message] What is Ava on GloVe?",  # of the four others one promises as much, three more
        "[message] I have no score for Ava Li on GloVe.",
        *ASKS[4:],
    )
    annotate(dialogue)
    first, _, second, reply, again, *_ = dialogue.turns
    assert (first.question_rank, second.question_rank) == (0.5, 0.125), "at first all six promise the same"
    assert again.question_rank is reply.question_rank is None
    assert (first.redundant, second.redundant, again.redundant) == ([], [], [(0, 1)])
    assert [turn.unknown for turn in dialogue.turns[::2]] == [6, 5, 4, 4] and reply.unknown is None
    row = measures(dialogue)
    assert (row["question_rank"], row["redundant"], row["unknown"]) == (0.3125, 1 / 3, 6)
    silent = make_dialogue("[propose]\nBLEU: Ava", "[accept]")
    annotate(silent)
    assert math.isnan(float(measures(silent)["question_rank"])) and math.isnan(float(measures(silent)["redundant"]))


def test_annotated_again_or_from_its_line_a_dialogue_is_the_same(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue(*ASKS)
    annotate(dialogue)
    line = json.loads(json.dumps(dialogue.to_dict(tokens=False)))
    assert measures(line) == measures(dialogue)
    annotate(dialogue)
    assert Dialogue.from_dict(line).turns == dialogue.turns


def test_what_was_told_unasked_makes_no_informative_pair(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue(
        "[message] Hello!", "[message] Ava Li on Electra: 180.", "[message] What is Ava on Electra?", "[message] 180"
    )
    annotate(dialogue)
    assert dialogue.turns[1].stated == [(0, 1)]
    assert dialogue.turns[2].question_value == 0.0
    assert measures(dialogue)["informative_pairs"] == 0
    assert measures(dialogue)["pairs_asked"] == 1


def test_only_answers_count_as_answered(make_dialogue: MakeDialogue) -> None:
    vague = make_dialogue(
        "[message] What is Ava on Electra?", "[message] Hm, who knows.", "[message] What is Daniel on BLEU?"
    )
    annotate(vague)
    assert [turn.answered for turn in vague.turns] == [False, None, False]
    assert [turn.question_value for turn in vague.turns] == [0.0, None, 0.0]
    general = make_dialogue("[message] What are your best scores?", "[message] Ava Li on Electra: 180.")
    annotate(general)
    assert general.turns[0].answered is True
    assert general.turns[0].question_value == pytest.approx(20 / 230, abs=1e-5)
    assert general.turns[0].regret is None


def test_a_refused_turn_reached_no_one(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue("!What is Ava on Electra?", "[message] Ava Li on Electra: 180.")
    annotate(dialogue)
    row = measures(dialogue)
    assert (row["questions"], row["errors"], row["messages"]) == (0, 1, 0)
    assert math.isnan(float(row["answered"]))
    assert math.isnan(float(row["questions_per_message"]))


def test_the_other_seat_sees_the_other_mask(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue(
        "[message] Hello.", "[message] What is Ava on BLEU?", "[message] Ava on BLEU is 60.", seat=1
    )
    for turn in dialogue.turns:
        turn.role = "policy" if turn.seat == 1 else "partner"
    annotate(dialogue)
    assert measures(dialogue)["informative_pairs"] == 1


def test_another_game_has_labels_only(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue("[message] How good is your hand?", "[message] 12", game_state={"cards": [1, 2]})
    annotate(dialogue)
    assert dialogue.turns[0].questions
    assert dialogue.turns[0].pairs == []
    assert dialogue.turns[0].question_value is None
    assert measures(dialogue)["informative_pairs"] == 0


def test_malformed_proposals_lower_the_valid_share(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue("![propose] everybody", "[message] Yes?", "[propose]\nBLEU: Ava", "[reject]")
    annotate(dialogue)
    assert measures(dialogue)["valid_proposals"] == 0.5
    assert measures(dialogue)["proposals"] == 1


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
        **dict.fromkeys(
            ("answered", "informative_pairs", "failure/partner_failed"), 1.0
        ),  # answers of the one that asked
        "questions/check": 0.0,
        "malformed": 0.0,
        "failed": 1 / 3,
        "stop/agreed": 1 / 3,
        "turns_p50": 5.0,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected) and "cost_usd" not in metrics
    assert all(isinstance(value, float) for value in metrics.values())
    assert batch_metrics([]) == {}
    assert batch_metrics([failed])["failed"] == 1.0


def test_calls_to_an_endpoint_are_counted_where_there_are_any(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue(*ASKS)
    partner = [turn for turn in dialogue.turns if turn.role == "partner"]
    for turn, retries in zip(partner, (1, 0), strict=False):
        turn.usage = Usage(calls=1, retries=retries, input_tokens=1000, cached_tokens=750, cost_usd=0.25)
    metrics = batch_metrics([dialogue])
    assert len(partner) > 1
    assert (metrics["cost_usd"], metrics["partner_retries"], metrics["partner_cached"]) == (0.5, 0.5, 0.75)


def test_questions_are_those_that_seek_information(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue(
        "[message] Shall we put Ava on BLEU?", "[message] No.", "[message] What is Ava on Electra?"
    )
    annotate(dialogue)
    assert [turn.seeking for turn in dialogue.turns] == [False, False, True]
    row = measures(dialogue)
    assert (row["questions_any"], row["questions"], row["questions/check"]) == (2, 1, 1)
    metrics = batch_metrics([dialogue])
    assert (metrics["questions_any"], metrics["questions"], metrics["questions/check"]) == (2.0, 1.0, 1.0)


def test_a_game_that_came_to_its_own_end_was_not_agreed(make_dialogue: MakeDialogue) -> None:
    dialogue = make_dialogue("[message] Hi.", "[message] Hi.", stop_reason=StopReason.FINISHED)
    assert measures(dialogue)["agreed"] == batch_metrics([dialogue])["agreed"] == 0.0


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
