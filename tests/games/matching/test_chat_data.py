"""Recorded games as chat data: playable, with the people's words, and targets where they spoke."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.games_file import GameRow, read_rows, write_rows
from slim_rl.errors import DataError
from slim_rl.games.matching.env import MatchingEnv
from slim_rl.games.matching.state import GameState
from slim_rl.games.matching.study.recorded import (
    GO_ON,
    conversation,
    convert_command,
    encode,
    playable,
    read_record,
    read_recorded,
)

PLAN = [[0, 0], [1, 1], [2, 2]]
WORDS = "BLEU: Ava Li<br/>Electra: Daniel Nguyen<br/>GloVe: Sofia Patel"


def says(player: int, text: str) -> dict[str, Any]:
    return {"type": "message", "player": player, "message": {"data": text}}


def proposes(player: int) -> dict[str, Any]:
    return {"type": "proposal", "player": player, "proposal": WORDS, "proposal_ids": PLAN}


def answers(player: int, accept: bool) -> dict[str, Any]:
    return {"type": "proposal_response", "player": player, "response": {"accept": accept}}


def record(*log: dict[str, Any]) -> dict[str, Any]:
    table = [[9, 1, 1], [1, 9, 1], [1, 1, 9]]
    mask = [[1] * 3] * 3
    return {
        "table": table, "mask1": mask, "mask2": mask, "scale1": 1.0, "scale2": 2.0, "best_assignment_reward": 27,
        "action_log": list(log),
    }  # fmt: skip


def played(*log: dict[str, Any]) -> list[tuple[int, str, bool]]:
    return [(turn.seat, turn.text.split("\n")[0], turn.recorded) for turn in playable(read_record(record(*log)))]


def test_a_strict_record_stays_as_it_is() -> None:
    log = says(0, "Ava on BLEU?"), says(1, "Nine."), proposes(0), answers(1, True)
    assert played(*log) == [
        (0, "[message] Ava on BLEU?", True),
        (1, "[message] Nine.", True),
        (0, "[propose]", True),
        (1, "[accept]", True),
    ]


def test_what_people_did_besides_is_made_legal() -> None:
    log = (
        says(1, "Hi."),  # seat 1 opens
        says(1, "I see nines. [accept]"),  # twice in a row, and a tag within
        proposes(1),  # three times
        says(0, "Hm, wait."),  # talk while it is pending
        proposes(0),  # replaces it
        answers(1, True),
    )
    assert played(*log) == [
        (0, GO_ON, False), (1, "[message] Hi. I see nines. (accept)", True), (0, GO_ON, False),
        (1, "[propose]", True), (0, "[reject]", False), (1, GO_ON, False), (0, "[propose]", True),
        (1, "[accept]", True),
    ]  # fmt: skip


@pytest.mark.parametrize("seat", [0, 1])
def test_conversation_targets_are_the_seats_own_turns(seat: int) -> None:
    game = read_record(record(says(0, "Ava on BLEU?"), says(1, "Nine."), proposes(0), answers(1, True)))
    seen = conversation(game, seat)
    env = MatchingEnv(max_proposals=None)  # people were held to no number of plans
    env.reset(game.state)
    assert seen.messages[0] == env.prompt(seat)[0]
    assert seen.reward == 1.0
    targets = [message["content"].split("\n")[0] for message, own in zip(seen.messages, seen.train, strict=True) if own]
    assert targets == (["[message] Ava on BLEU?", "[propose]"] if seat == 0 else ["[message] Nine.", "[accept]"])
    roles = [message["role"] for message in seen.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    if seat == 1:
        assert seen.messages[1]["content"] == f"{env.prompt(1)[1]['content']}\n\n[message] Ava on BLEU?"
        assert seen.messages[3]["content"].endswith("Answer with [accept] or [reject].")


def test_supplied_words_are_no_targets() -> None:
    seen = conversation(read_record(record(says(1, "Hi."), proposes(1), answers(0, True))), 0)
    own = [
        (message["content"], own)
        for message, own in zip(seen.messages, seen.train, strict=True)
        if message["role"] == "assistant"
    ]
    assert own == [(GO_ON, False), (GO_ON, False), ("[accept]", True)]


def test_labels_are_target_tokens_as_in_training(tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    seen = conversation(
        read_record(record(says(0, "Ava on BLEU?"), says(1, "Nine."), proposes(0), answers(1, True))), 0
    )
    row = encode(seen.messages, seen.train, chat)
    ids, labels = row["input_ids"], row["labels"]
    assert len(ids) == len(labels)
    assert all(label in (-100, token) for token, label in zip(ids, labels, strict=True))
    target = tokenizer.decode([label for label in labels if label != -100])
    assert target == f"{seen.messages[2]['content']}<|im_end|>{seen.messages[4]['content']}<|im_end|>"
    assert tokenizer.decode(ids) + "\n" == chat.render(seen.messages, add_generation_prompt=False)
    silent = encode(seen.messages, [False] * len(seen.train), chat)
    assert set(silent["labels"]) == {-100}
    assert silent["input_ids"] == ids


def test_the_command_writes_conversations(tmp_path: Path, tokenizer: Any) -> None:
    source = tmp_path / "recorded.jsonl"
    good = record(says(0, "Ava on BLEU?"), says(1, "Nine."), proposes(0), answers(1, True))
    none = record(says(0, "Hello?"), says(1, "Bye."))
    source.write_text("\n".join(map(json.dumps, (good, none))))
    tokenizer.save_pretrained(tmp_path / "tokenizer")

    assert convert_command(source, tmp_path / "sft.jsonl", tokenizer=str(tmp_path / "tokenizer")) == 4
    rows = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_text().splitlines()]
    assert [(row["seat"], row["reward"]) for row in rows] == [(0, 1.0), (1, 1.0), (0, 0.0), (1, 0.0)]
    assert all(
        len(row["messages"]) == len(row["train"]) and len(row["input_ids"]) == len(row["labels"]) for row in rows
    )

    assert convert_command(source, tmp_path / "good.jsonl", seat=1, min_reward=0.5) == 1
    games = read_rows(source, MatchingEnv(max_proposals=None), (0,))
    assert [GameState.from_dict(game.game_state) for game in games] == [
        GameState.from_dict(each) for each in (good, none)
    ]
    assert games[0].prompt == conversation(read_record(good), 0).messages[:2]


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    source = tmp_path / "recorded.jsonl"
    source.write_text(json.dumps(record()) + "\n{nonsense")
    with pytest.raises(DataError, match="line 2"):
        convert_command(source, tmp_path / "out.jsonl")


def test_a_file_of_our_own_is_told_from_games_of_people(tmp_path: Path) -> None:
    game = read_record(record()).state
    write_rows([GameRow.of(MatchingEnv(), game.id, game)], tmp_path / "games.jsonl")
    with pytest.raises(
        DataError, match=r"games\.jsonl is slim_rl's own games file, which is played as it stands"
    ) as caught:
        convert_command(tmp_path / "games.jsonl", tmp_path / "out.jsonl")
    assert "it needs" not in str(caught.value)
    with pytest.raises(DataError, match="is slim_rl's own dialogue log, which slim-rl show and analyze read"):
        convert_command(_written(tmp_path / "log.jsonl", {"turns": [], "game_id": "g"}), tmp_path / "out.jsonl")
    with pytest.raises(DataError, match="line 1: This is not a game state: it has none of table, "):
        convert_command(_written(tmp_path / "other.jsonl", {"a": 1}), tmp_path / "out.jsonl")
    with pytest.raises(DataError, match="line 1: The game state cannot be used: it has no mask1"):
        convert_command(_written(tmp_path / "half.jsonl", record() | {"mask1": None}), tmp_path / "out.jsonl")


def _written(path: Path, line: dict[str, Any]) -> Path:
    path.write_text(json.dumps(line))
    return path


def test_every_human_game_converts_to_its_recorded_reward(dialop_human: Path) -> None:
    people = 0
    supplied = 0
    for game in read_recorded(dialop_human / "optimization.jsonl"):
        turns = playable(game)
        assert [turn.seat for turn in turns] == [index % 2 for index in range(len(turns))]
        for seat in (0, 1):
            seen = conversation(game, seat)
            assert seen.reward == game.reward
            people += sum(seen.train)
        supplied += sum(not turn.recorded for turn in turns)
    assert people > 1000
    assert supplied < people
