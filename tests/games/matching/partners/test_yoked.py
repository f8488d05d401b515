"""A yoked partner tells what was told elsewhere at the same turns, and nothing that is said changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slim_rl.config import parse_config
from slim_rl.dialogue.log import DialogueLog
from slim_rl.dialogue.players import make_partner
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.errors import DataError
from slim_rl.games.matching.actions import format_proposal
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.partners.scripted import NOTED, ShyPartner
from slim_rl.games.matching.state import GameState, MatchingSettings
from slim_rl.games.matching.study.controls import YokedPartner
from tests.games.matching.partners.test_scripted import SMALL, Match, cells, names, stated

OTHER = next(generate_games(1, MatchingSettings(n=3, scales=False, p_observed_2=0.9, hardness=0), seed=5))
KNOWN = cells(SMALL, 1, True)
SILENT = [f"[message] {text}" for text in NOTED]


def recorded(questions: list[str], seed: int, state: GameState = SMALL) -> Dialogue:
    """A dialogue with a shy partner in which these questions were asked."""
    match = Match(ShyPartner(), state, seed=seed, max_turns=100)
    turns = []
    for question in questions:
        turns.append(Turn(f"[message] {question}", 0, "policy", {"kind": "message"}))
        turns.append(Turn(match.say(turns[-1].text) or "", 1, "partner", {"kind": "message"}))
    plan = format_proposal((0, 1, 2), state.roster)
    turns += [Turn(plan, 0, "policy", {"kind": "propose"}), Turn("[accept]", 1, "partner", {"kind": "accept"})]
    dialogue = Dialogue(f"{state.id}-{seed}-{len(turns)}", state.id, 0, seed, state.to_dict(), {}, {}, turns=turns)
    dialogue.reward, dialogue.stop_reason = 1.0, StopReason.AGREED
    return dialogue


def log(path: Path, *dialogues: Dialogue) -> Path:
    with DialogueLog(path / "train.jsonl") as file:
        for dialogue in dialogues:
            file.append(dialogue)
    return path


def ask(pair: tuple[int, int]) -> str:
    return f"What is {names(SMALL, pair)}?"


def test_its_twin_decides_what_is_told_and_when(tmp_path: Path) -> None:
    a, b = KNOWN[:2]
    partner = YokedPartner(replay=log(tmp_path, recorded([ask(a), "Hello.", ask(b)], 7), recorded([ask(b)], 8)))
    for words in (["Hello."] * 4, [ask(KNOWN[2])] * 4, [ask(b), ask(a), "What is your best?", "Ava on BLEU is 3."]):
        match = Match(partner, SMALL, seed=7)
        replies = [match.say(f"[message] {word}") or "" for word in words]
        assert stated(replies[:1], SMALL).keys() == {a} and stated(replies[2:3], SMALL).keys() == {b}
        assert replies[1] in SILENT and replies[3] in SILENT
        r, p = a
        assert stated(replies, SMALL)[a] == SMALL.displayed(1)[r][p]
    assert match.say(format_proposal(SMALL.best(), SMALL.roster)) == "[accept]"


def test_yoked_without_twin_uses_another_dialogue_of_the_game(tmp_path: Path) -> None:
    a, b = KNOWN[:2]
    partner = YokedPartner(replay=log(tmp_path, recorded([ask(a)], 1), recorded([ask(b)], 2), recorded([], 3, OTHER)))
    told = {
        tuple(stated([Match(partner, SMALL, seed=seed).say("[message] Hello.") or ""], SMALL)) for seed in range(10, 40)
    }
    assert told == {(a,), (b,)}


def test_of_a_game_without_a_record_as_many_cells_are_told(tmp_path: Path) -> None:
    partner = YokedPartner(replay=log(tmp_path, recorded([ask(KNOWN[0]), "Hello.", ask(KNOWN[1])], 1)))
    firsts = set()
    for seed in range(20):
        match = Match(partner, OTHER, seed=seed)
        told = [stated([match.say(f"[message] {ask(KNOWN[0])}") or ""], OTHER) for _ in range(5)]
        assert [len(each) for each in told] == [1, 0, 1, 0, 0]
        shown = OTHER.displayed(1)
        assert all(shown[r][p] == value for each in told for (r, p), value in each.items())
        assert told[0].keys() != told[2].keys()
        firsts.update(told[0])
    assert len(firsts) > 3


def test_the_later_of_two_twins_counts_and_failed_ones_do_not(tmp_path: Path) -> None:
    a, b = KNOWN[:2]
    before, after, failed = recorded([ask(a)], 1), recorded([ask(b), "Hello."], 1), recorded([ask(a)] * 3, 1)
    failed.stop_reason, failed.reward = StopReason.DEADLINE, None
    partner = YokedPartner(replay=log(tmp_path, before, after, failed))
    assert stated([Match(partner, SMALL, seed=1).say("[message] Hello.") or ""], SMALL).keys() == {b}


def test_the_config_names_its_log(tmp_path: Path) -> None:
    log(tmp_path, recorded([ask(KNOWN[0])], 1))
    partner = make_partner(parse_config({"partner": {"kind": "yoked", "args": {"replay": str(tmp_path)}}}))
    assert partner is not None and partner.identity["kind"] == "yoked" and partner.identity["log"] == tmp_path.name
    args = {"replay": str(tmp_path), "max_pairs": 1}  # what the shy partner beside it has
    assert make_partner(parse_config({"partner": {"kind": "yoked", "args": args}})) is not None
    with pytest.raises(DataError, match="no dialogue log"):
        make_partner(parse_config({"partner": {"kind": "yoked", "args": {"replay": str(tmp_path / "none")}}}))
