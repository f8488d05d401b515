"""The second example, a game for two: playable, measured by its own annotations, trained, evaluated and reported as it stands."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.treasure import Belief, Treasure, cell_dug, lines_named
from slim_rl.commands.lab.run import arms_runs
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.lab import incentives
from slim_rl.measured import measured
from tests.examples.sessions import config_in, played_by_hand, said
from tests.paths import ROOT

LIAR = ("partner.kind=examples.lying_partner.LyingPartner", "partner.args={lies: 1.0}")
CENTRE = {"treasure": [1, 1]}  # row B, column Y: cell 5


def play(tokenizer: Any, *turns: str, overrides: tuple[str, ...] = (), seat: int = 0) -> Dialogue:
    return said(config_in(Path("runs"), "treasure", *overrides), tokenizer, turns, CENTRE, seat)


def test_a_seeker_asks_is_answered_and_digs(tokenizer: Any) -> None:
    dialogue = play(tokenizer, "Is it in row B?", "Column Y or Z?", "Hello.", "Column Y?", "I dig 5")
    vague = "Ask me about one row or one column, by its letter."
    assert [turn.text for turn in dialogue.turns if turn.role == "partner"] == ["Yes.", vague, vague, "Yes."]
    assert (dialogue.stop_reason, dialogue.reward) == (StopReason.FINISHED, 1.0)
    assert (dialogue.environment, dialogue.partner) == ("examples.treasure.Treasure", {"kind": "honest"})


ENDS = {"5": ("finished", 1.0), "4": ("finished", 0.5), "2": ("finished", 0.5), "9": ("finished", 0.0)}
ENDS |= {"10|0": ("policy_errors", 0.0), "|77": ("policy_errors", 0.0), "A?|A?|A?|A?|A?": ("max_turns", 0.0)}


@pytest.mark.parametrize("turns", ENDS)
def test_seeker_is_rewarded_by_the_cell_it_digs(tokenizer: Any, turns: str) -> None:
    dialogue = play(tokenizer, *turns.split("|"))
    assert (dialogue.stop_reason, dialogue.reward) == ENDS[turns]


def test_questions_have_custom_labels_and_values(tokenizer: Any) -> None:
    dialogue = play(tokenizer, "Row A?", "Row A?", "Column Y?", "Good.", "5")
    first, again, column, talk, _ = (turn for turn in dialogue.turns if turn.role == "policy")
    assert (first.questions, first.pairs, first.answered, first.seeking) == (["row"], [(0, 0)], True, True)
    assert first.question_value == first.gain == pytest.approx(1 / 12)  # a row of three, then of two
    assert again.informative == [] and again.question_value == 0 and again.regret == pytest.approx(1 / 4)
    assert (column.questions, column.informative, column.regret) == (["column"], [(1, 1)], pytest.approx(1 / 4 - 1 / 6))
    assert column.question_value == pytest.approx(1 / 3)
    assert (talk.questions, talk.answered, talk.question_value) == ([], None, None)
    found = measures(dialogue)
    assert (found["questions"], found["pairs_asked"], found["repeats"], found["informative_pairs"]) == (3, 2, 1, 2)
    kinds = {name: count for name, count in found.items() if name.startswith("questions/")}
    assert kinds == {"questions/row": 2, "questions/column": 1}
    assert math.isnan(float(found["valid_proposals"])), "nothing is proposed in this game"
    assert first.state_value == pytest.approx(1 / 3) and column.state_value == pytest.approx(1 / 3 + 1 / 12)
    assert found["question_value"] == pytest.approx(1 / 12 + 1 / 3)
    assert Dialogue.from_dict(dialogue.to_dict()) == dialogue


def test_a_lie_is_worth_something_to_the_seeker_and_costs_it(tokenizer: Any) -> None:
    dialogue, same = (play(tokenizer, "Row B?", "Row A?", "1", overrides=LIAR) for _ in range(2))
    lied, again = (turn for turn in dialogue.turns if turn.questions)
    assert [turn.text for turn in dialogue.turns if turn.role == "partner"] == ["No.", "Yes."]
    assert lied.question_value == pytest.approx(1 / 12) and lied.gain == pytest.approx(-1 / 6)
    assert again.question_value == pytest.approx(1 / 4) and again.gain == 0.0
    assert (dialogue.reward, dialogue.partner) == (0.0, {"kind": "examples.lying_partner.LyingPartner", "lies": 1.0})
    assert [turn.text for turn in same.turns] == [turn.text for turn in dialogue.turns]


@pytest.mark.parametrize("text", ["is it in row 1?", "Is it in row 1", "Column 12", "Cell 5?", "5? or row A?"])
def test_a_question_is_a_question_and_digs_nowhere(tokenizer: Any, text: str) -> None:
    dialogue = play(tokenizer, text, "5")
    assert dialogue.turns[0].action == {"kind": "message"} and dialogue.reward == 1.0
    assert dialogue.turns[1].role == "partner" and len(dialogue.turns) == 3


@pytest.mark.parametrize("text", ["5", "I dig 5.", "In row 2, column 2, cell 5!", "5: row B"])
def test_a_number_digs(text: str) -> None:
    assert cell_dug(text) == 5 and lines_named(text) == []


def test_questions_worth_asking_tell_something_each() -> None:
    for seed in range(20):
        state, belief = Treasure.sample_state(seed), Belief()
        for question in measured(Treasure).questions_worth_asking(state, 0, 9, seed):
            assert measured(Treasure).asks(question)
            (line,) = lines_named(question)
            assert belief.expected_value(line) > 0
            belief.update(line, state["treasure"][line[0]] == line[1])
        assert belief.expected() == belief.expected(state["treasure"]) == 1.0
        assert len(measured(Treasure).questions_worth_asking(state, 0, 1, seed)) == 1


def test_asking_pays(tmp_path: Path) -> None:
    games = [({"treasure": [r, c]}, 0) for r in range(3) for c in range(3)]
    mean = {name: sum(line["rewards"]) / 9 for name, line in measured(Treasure).references(games).items()}
    assert mean == {"random": pytest.approx(1 / 3), "one_question": pytest.approx(1 / 2)}
    curve = measured(Treasure).frontier(games, 4)["greedy"]
    means = curve.rewards.mean(axis=0).tolist()
    assert curve.expected_gain[:, 0] == pytest.approx(1 / 6) and (curve.stops(0.0) <= 4).all()
    assert means[:2] == pytest.approx([1 / 3, 1 / 2]) and means[-1] == 1.0 and means == sorted(means)
    assert measured(Treasure).references([])["random"]["rewards"] == ()
    found = incentives.measure(config_in(tmp_path, "treasure"), 30)
    assert [line.questions for line in found.curve] == list(range(9))
    assert found.rewards_asking and found.sentence.startswith("Asking raises the reward: one greedy question")


def test_the_arms_of_its_config_are_its_own() -> None:
    runs = arms_runs(ROOT / "examples" / "treasure.yaml", None, {"seeds": 0}, [])
    assert [run.name for run in runs] == ["treasure-honest-s0", "treasure-lying-s0"]


def test_a_person_seeks_by_hand(tmp_path: Path) -> None:
    config = config_in(tmp_path, "treasure")
    r, c = load_rows(config, "eval")[0].game_state["treasure"]
    reward, screen = played_by_hand(config, [f"Row {'ABC'[r]}?", "99", f"{3 * r + c + 1}"])
    assert reward == 1.0
    assert "partner> Yes." in screen and "a cell from 1 to 9" in screen and f"*{3 * r + c + 1}" in screen
    assert "[propose]" not in screen and "[message]" not in screen


def test_a_game_and_a_partner_may_lie_where_the_command_is_run(tmp_path: Path) -> None:
    for name in ("treasure", "lying_partner"):
        text = (ROOT / "examples" / f"{name}.py").read_text().replace("examples.treasure", "own_treasure")
        (tmp_path / f"own_{name}.py").write_text(text)
    (tmp_path / "own.yaml").write_text(
        "slim_rl: {environment: own_treasure.Treasure, partner: {kind: own_lying_partner.LyingPartner}, "
        "data: {train: train.jsonl, num_train: 3}}"
    )
    # as the installed command starts: without the current folder among the places of imports
    code = f"import sys; sys.path.append({str(ROOT)!r}); from slim_rl.cli import main; main()"
    command = [sys.executable, "-P", "-c", code, "generate", "own.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "train.jsonl").read_text().splitlines()) == 3


def test_self_play_gives_the_seeker_no_secret(tokenizer: Any) -> None:
    seeker = play(tokenizer, "Row B?", "Yes.", "5", overrides=("partner.kind=self",))
    assert seeker.reward == 1.0 and "row B, column Y" not in str(seeker.prompt)


def test_trainer_refuses_invalid_config_in_one_sentence() -> None:
    words = [sys.executable, "-m", "examples.train", "nope.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "nope.yaml" in done.stderr
