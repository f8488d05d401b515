"""Recorded games come to the score they were recorded with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slim_rl.errors import DataError
from slim_rl.games.matching.actions import ActionError, parse_proposal
from slim_rl.games.matching.state import GameState
from slim_rl.games.matching.study.recorded import read_record
from tests.paths import HUMAN


@pytest.fixture(scope="session")
def human_games() -> list[dict[str, Any]]:
    if not HUMAN.exists():
        pytest.skip("DialOp's human games are not here")
    return [json.loads(line) for line in (HUMAN / "optimization.jsonl").read_text(encoding="utf-8").splitlines()]


def message(player: int, text: str) -> dict[str, Any]:
    return {"type": "message", "player": player, "message": {"data": text, "from_player": player}}


def proposal(player: int, *pairs: tuple[str, str, int, int]) -> dict[str, Any]:
    lines = "".join(f"<br/>&emsp; - {paper}: {reviewer}" for paper, reviewer, _, _ in pairs)
    return {
        "type": "proposal",
        "player": player,
        "proposal": f"Proposal:{lines}",
        "proposal_ids": [[reviewer, paper] for _, _, reviewer, paper in pairs],
    }


def response(player: int, accept: bool) -> dict[str, Any]:
    return {"type": "proposal_response", "player": player, "response": {"accept": accept}}


GOOD = (("BLEU", "Ava Li", 0, 0), ("Electra", "Daniel Nguyen", 1, 1), ("GloVe", "Sofia Patel", 2, 2))
WORSE = (("Electra", "Ava Li", 0, 1), ("BLEU", "Daniel Nguyen", 1, 0), ("GloVe", "Sofia Patel", 2, 2))


def record(game: GameState, *log: dict[str, Any]) -> dict[str, Any]:
    return {**game.to_dict(), "action_log": list(log)}


def test_human_games_score_as_recorded(human_games: list[dict[str, Any]]) -> None:
    assert len(human_games) == 134
    games = [read_record(game) for game in human_games]
    assert [played.reward * played.state.best_assignment_reward for played in games] == pytest.approx(
        [game["proposal_reward"] for game in human_games]
    )
    assert sum(played.reward for played in games) / 134 == pytest.approx(0.921, abs=0.0005)
    for game, played in zip(human_games, games, strict=True):
        assert [seat for seat, _ in played.actions] == [entry["player"] for entry in game["action_log"]]


def test_human_proposals_read_as_recorded(human_games: list[dict[str, Any]]) -> None:
    read, unread = 0, []
    for number, game in enumerate(human_games):
        roster = GameState.from_dict(game).roster
        for entry in game["action_log"]:
            if entry["type"] == "proposal":
                plan = parse_proposal(entry["proposal"], roster)
                if not isinstance(plan, ActionError) and set(enumerate(plan)) == set(map(tuple, entry["proposal_ids"])):
                    read += 1
                else:
                    unread.append(number)
    assert (read, unread) == (228, [32, 32, 32])


def test_the_game_with_other_names_tells_them(human_games: list[dict[str, Any]]) -> None:
    roster = read_record(human_games[32]).state.roster
    assert len(set(roster.reviewers)) == 8
    assert "Ava Li" not in roster.reviewers
    assert (
        read_record({**human_games[32], "reviewers": roster.reviewers, "papers": roster.papers}).state.roster == roster
    )


def test_a_new_proposal_replaces_a_pending_one_and_talk_does_not(game: GameState) -> None:
    log = [message(1, "hi"), message(1, "hello?"), proposal(0, *WORSE), proposal(0, *GOOD), message(0, "ok?")]
    played = read_record(record(game, *log, response(1, True)))
    assert played.reward == 1.0
    assert [action.kind for _, action in played.actions] == [
        "message",
        "message",
        "propose",
        "propose",
        "message",
        "accept",
    ]


def test_a_rejected_proposal_scores_nothing(game: GameState) -> None:
    played = read_record(record(game, proposal(0, *WORSE), response(1, False), message(0, "oh")))
    assert played.reward == 0.0


def test_names_are_read_off_the_proposals(game: GameState) -> None:
    strangers = tuple((paper, name, r, p) for (paper, _, r, p), name in zip(GOOD, ("Xu", "Yan", "Zed"), strict=True))
    played = read_record(record(game, proposal(0, *strangers), response(1, True)))
    assert played.state.roster.reviewers == ("Xu", "Yan", "Zed")
    assert played.reward == 1.0


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ([response(1, True)], "none is pending"),
        ([proposal(0, *GOOD), response(1, False), response(1, True)], "none is pending"),
        ([proposal(0, *GOOD), response(1, True), message(0, "more")], "after the accepted proposal"),
        ([{"type": "message", "player": 0}], "Entry 1 .* malformed"),
        ([{"type": "wave", "player": 0}], "wave"),
        ([{**proposal(0, *GOOD), "proposal_ids": [[0, 1], [1, 0], [2, 2]]}], "not the same plan"),
        ([proposal(0, *GOOD[:2], ("GloVe", "Nobody", 2, 2)), proposal(0, *WORSE[:2], ("GloVe", "Nono", 2, 2))], "both"),
    ],
)
def test_records_that_contradict_themselves(game: GameState, log: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_record(record(game, *log))


def test_a_state_alone_is_no_record(game: GameState) -> None:
    with pytest.raises(DataError, match="action_log"):
        read_record(game.to_dict())
