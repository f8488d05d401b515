"""What the instrument says of a dialogue."""

from __future__ import annotations

import math
from typing import Any

import pytest

from examples.guess_who import GuessWhoEnv
from slim_rl.backends.step_line import step_line
from slim_rl.dialogue.measures import batch_metrics, measures
from slim_rl.dialogue.record import Dialogue
from slim_rl.measured import measured
from tests.examples.guess_who.made import play

LIAR = "tests.examples.guess_who.liar.Liar"


def test_turns_are_labelled_and_valued(tokenizer: Any) -> None:
    turns = ["Does it wear glasses?", "Glasses?", "Is it Mara?", "[guess] Kira"]
    dialogue = play(tokenizer, turns)
    trait, again, character, guess = (turn for turn in dialogue.turns if turn.role == "policy")
    assert [turn.questions for turn in (trait, again, character, guess)] == [["trait"], ["repeat"], ["character"], []]
    assert trait.pairs == trait.learnable == trait.informative == [("trait", "glasses")]
    assert (trait.question_value, trait.gain, trait.regret, trait.answered) == (0.25, 0.25, 0.0, True)
    assert again.learnable == again.informative == [] and again.question_value == 0.0 and again.regret == 0.5
    assert character.question_value == 0.5 and character.informative == [("character", "Mara")]
    assert [turn.state_value for turn in (trait, again, character, guess)] == [0.25, 0.5, 0.5, 1.0]
    assert measured(GuessWhoEnv).state_values(dialogue) == [0.25, 0.5, 0.5, 1.0]
    assert (trait.question_rank, again.question_rank, character.question_rank) == (6.5 / 7, None, 0.5), "by bits"
    assert again.redundant == again.pairs and trait.redundant == character.redundant == []
    assert guess.best_known == 1.0 and trait.best_known is None
    assert dialogue.columns == {"board": 4, "left": 1, "bits": 2.0, "bits_told": 2.0}
    found = measures(dialogue)
    assert (found["questions"], found["pairs_asked"], found["repeats"], found["informative_pairs"]) == (3, 2, 1, 2)
    assert {name: found[f"questions/{name}"] for name in measured(GuessWhoEnv).question_kinds} == {
        "trait": 1, "character": 1, "repeat": 1, "open": 0,
    }  # fmt: skip
    assert found["best_known"] == 1.0 and found["answered"] == 1.0
    assert Dialogue.from_dict(dialogue.to_dict()) == dialogue


def test_open_questions_and_talk(tokenizer: Any) -> None:
    dialogue = play(tokenizer, ["Who is it?", "I like hats.", "Hat or glasses?", "[guess] Rosa"])
    general, talk, several, _ = (turn for turn in dialogue.turns if turn.role == "policy")
    for turn in (general, several):
        assert (turn.questions, turn.seeking, turn.answered, turn.pairs) == (["open"], True, False, [])
    assert (talk.questions, talk.seeking, talk.question_value) == ([], False, None)
    assert measures(dialogue)["best_known"] == 0.25 and measured(GuessWhoEnv).partner_faults(dialogue) == {
        "gave a false answer": (0, 0),
        "left a plain question open": (0, 0),
        "told what it was not asked about": (0, 3),
    }


def test_lie_has_value_costs_reward_and_is_a_fault(tokenizer: Any) -> None:
    dialogue = play(tokenizer, ["Glasses?", "Who is it?", "[guess] Yuri"], partner=LIAR)
    lied, _, last = (turn for turn in dialogue.turns if turn.role == "policy")
    assert lied.question_value == 0.25 and lied.gain == pytest.approx(-0.25) and last.best_known == 0.0
    assert measured(GuessWhoEnv).partner_faults(dialogue) == {
        "gave a false answer": (1, 1),
        "left a plain question open": (0, 1),
        "told what it was not asked about": (1, 2),
    }
    mute = play(tokenizer, ["Glasses?", "[guess] Yuri"], partner="mute")
    assert measured(GuessWhoEnv).partner_faults(mute)["left a plain question open"] == (1, 1)


def test_refused_action_asks_nothing_and_cuts_are_allowed(tokenizer: Any) -> None:
    dialogue = play(tokenizer, ["[shout] Glasses?", "Glasses?", "[guess] Mara"])
    refused, asked, _ = (turn for turn in dialogue.turns if turn.role == "policy")
    assert refused.questions == [] and refused.error and asked.learnable
    for end in range(len(dialogue.turns) + 1):
        part = Dialogue.from_dict(dialogue.to_dict())
        part.turns = part.turns[:end]
        measured(GuessWhoEnv).annotate(part)
    part.game_state = {"table": []}
    measured(GuessWhoEnv).annotate(part)
    assert part.turns[0].questions == [] and measured(GuessWhoEnv).partner_faults(part) == {}


def test_a_game_without_proposals_has_no_share_of_agreements(tokenizer: Any) -> None:
    dialogue = play(tokenizer, ["Glasses?", "[guess] Mara"])
    assert math.isnan(float(measures(dialogue)["agreed"]))
    metrics = batch_metrics([dialogue])
    assert "agreed" not in metrics and metrics["stop/finished"] == 1.0
    assert step_line(1, metrics).startswith("step    1: reward")
    assert "agreed" not in step_line(1, metrics) and "finished" not in step_line(1, metrics)
