"""Games files of a user's own: a table and two masks a line are enough, and all that is wrong with a line is said at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from slim_rl.commands.generate import command as generate
from slim_rl.config import Config
from slim_rl.dialogue.dealing import existing_rows, load_rows
from slim_rl.dialogue.rows import read_rows
from slim_rl.errors import DataError
from slim_rl.games.matching import MatchingEnv

BOARD: dict[str, Any] = {
    "table": [[90, 10, 80], [20, 70, 30], [60, 40, 95]],
    "mask1": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "mask2": [[0, 1, 0], [0, 0, 1], [1, 0, 0]],
}
OTHER = {**BOARD, "table": [[1, 2, 3], [4, 5, 6], [7, 8, 9]]}
NAMED = {"reviewers": ["Ida", "Jon", "Kim"], "papers": ["One: a", "Two: b", "Three: c"]}


def config(folder: Path, *rows: Any, **changes: Any) -> Config:
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"train": folder / "mine.jsonl", "eval": None, "num_train": len(rows), **changes}
    return Config.model_validate({"data": data, "train": {"games_per_step": 1}})


def test_games_file_of_tables_and_masks_is_completed(tmp_path: Path) -> None:
    first, named, third = load_rows(config(tmp_path, BOARD, {**OTHER, **NAMED, "seat": 1, "game_id": "mine"}, OTHER))
    assert [message["role"] for message in first.prompt] == ["system", "user"]
    assert "Ava Li: BLEU 90, Electra ?, GloVe ?" in first.prompt[1]["content"]
    assert first.solution == {"ground_truth": [0, 1, 2], "optimal_score": 255}
    assert (named.game_id, named.seat) == ("mine", 1) and "Ida" in named.prompt[1]["content"]
    assert len({first.game_id, named.game_id, third.game_id}) == 3


def test_cell_that_neither_seat_sees_holds_50_unless_told(tmp_path: Path) -> None:
    env = MatchingEnv()
    env.reset(BOARD)
    assert env.game.table == ((90, 10, 50), (50, 70, 30), (60, 50, 95)) and env.game.scale(0) == 1.0
    env.reset({**BOARD, "best_assignment_reward": 255, "scale1": 2.0})
    assert env.game.table[0][2] == 80 and env.game.displayed(0)[0][0] == 180


def test_seats_of_a_users_games_follow_the_config(tmp_path: Path) -> None:
    rows = load_rows(config(tmp_path, BOARD, OTHER, {**BOARD, **NAMED}, seat="both"))
    assert [row.seat for row in rows] == [0, 1, 0]


def test_all_that_is_wrong_with_a_row_is_said_at_once(tmp_path: Path) -> None:
    broken = {"table": BOARD["table"], "mask1": [[1, 0], [0, 1]], "mask2": [[2] * 3] * 3, "scale1": "big", "scale2": 0}
    with pytest.raises(DataError) as caught:
        load_rows(config(tmp_path, BOARD, broken))
    said = str(caught.value)
    assert f"{tmp_path / 'mine.jsonl'}, line 2: " in said
    assert all(said.count(key) == 1 for key in ("mask1", "mask2", "scale1", "scale2"))


def test_wrong_row_and_wrong_state_are_said_together(tmp_path: Path) -> None:
    row = {"prompt": [], "game_state": {**BOARD, "mask1": 3}, "game_id": "a", "metadata": {"seat": 4}, "spec": [1]}
    with pytest.raises(DataError, match=r"line 1: metadata.seat must be .* spec must be .* mask1 must be"):
        load_rows(config(tmp_path, row))
    with pytest.raises(DataError, match=r"line 1: seat must be 0 or 1, not 'left'"):
        load_rows(config(tmp_path, {**BOARD, "seat": "left"}))
    with pytest.raises(DataError, match=r"line 1: .*it has none of table, mask1, mask2"):
        load_rows(config(tmp_path, {"cells": []}))


@pytest.mark.parametrize("name", ["whole.jsonl", "whole.parquet"])
def test_generate_makes_whole_rows_of_a_users_games(tmp_path: Path, name: str) -> None:
    config(tmp_path, BOARD, OTHER)
    generate(games=tmp_path / "mine.jsonl", output=tmp_path / name)
    if name.endswith("parquet"):
        rows = pq.read_table(tmp_path / name).to_pylist()
        assert [json.loads(row["reward_model"]["ground_truth"]) for row in rows] == [[0, 1, 2], [2, 0, 1]]
    else:
        assert read_rows(tmp_path / name) == load_rows(config(tmp_path, BOARD, OTHER))


def test_slime_is_refused_games_without_prompts(tmp_path: Path) -> None:
    mine = config(tmp_path, BOARD)
    with pytest.raises(
        DataError, match=r"slime reads the prompt from the file.*--games .*mine.jsonl --output NEW.jsonl"
    ):
        existing_rows(mine.changed(train={"backend": "slime"}), "train")


def test_one_game_in_both_files_is_found(tmp_path: Path) -> None:
    mine = config(tmp_path, BOARD)
    both = mine.changed(data={"eval": tmp_path / "eval.jsonl", "num_eval": 1})
    (tmp_path / "eval.jsonl").write_text(json.dumps(BOARD) + "\n")
    with pytest.raises(DataError, match="share 1 games"):
        load_rows(both)
