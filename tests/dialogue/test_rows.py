"""Games files: whole or absent, readable by slime and verl, never mixed up, never shared between train and eval."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from slim_rl.commands.generate import command as generate
from slim_rl.config import Config, Limits
from slim_rl.dialogue.dealing import ensure_games, load_rows
from slim_rl.dialogue.loop import play_dialogue
from slim_rl.dialogue.parquet import read_game_state, write_parquet
from slim_rl.dialogue.rows import GameRow, read_rows, write_rows
from slim_rl.errors import ConfigError, DataError, SlimWarning
from slim_rl.games.matching import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.instance import GameState
from tests.dialogue.players import Countdown, Says
from tests.paths import ROOT

SCRIPT = ROOT / "scripts" / "generate_data.py"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def row_of(game: GameState, seat: int = 0) -> GameRow:
    return GameRow.of(MatchingEnv(), game.id, game, seat)


def small(tmp_path: Path, **data: Any) -> Config:
    data = {"train": tmp_path / "train.jsonl", "eval": tmp_path / "eval.jsonl", "num_train": 6, "num_eval": 4, **data}
    return Config.model_validate({"game": {"n": 3}, "data": data})


def test_rows_hold_all_a_trainer_needs(tmp_path: Path) -> None:
    path = tmp_path / "new" / "games.jsonl"
    generate(num_games=5, output=path, n=3, seed=2)
    rows = lines(path)
    assert len(rows) == 5
    for row in rows:
        game = GameState.from_dict(row["game_state"])
        assert game.score(row["ground_truth"]) == row["optimal_score"] == game.best_assignment_reward
        assert row["metadata"] == {"game_id": row["game_id"], "seat": 0, "game_state": row["game_state"]}
        env = MatchingEnv()
        env.reset(game)
        assert row["prompt"] == env.prompt(0)
    assert len({row["game_id"] for row in rows}) == 5
    assert [row.to_dict() for row in read_rows(path)] == rows


def test_seats(tmp_path: Path) -> None:
    def seats(seat: str) -> list[int]:
        path = tmp_path / f"{seat}.jsonl"
        generate(num_games=4, output=path, n=3, seat=seat)
        return [row.seat for row in read_rows(path)]

    assert seats("1") == [1, 1, 1, 1]
    assert seats("both") == [0, 1, 0, 1]


def test_parquet_for_verl(tmp_path: Path, game: GameState) -> None:
    path = tmp_path / "games.parquet"
    assert write_parquet([row_of(game, seat=1)], path, MatchingEnv()) == 1
    (row,) = pq.read_table(path).to_pylist()
    assert set(row) >= {"data_source", "prompt", "reward_model", "extra_info"}
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert json.loads(row["reward_model"]["ground_truth"]) == [0, 1, 2]
    assert GameState.from_dict(read_game_state(row["extra_info"])) == game
    assert (row["extra_info"]["game_id"], row["extra_info"]["seat"]) == (game.id, 1)
    frame = pq.read_table(path).to_pandas()
    assert GameState.from_dict(read_game_state(frame.extra_info[0])) == game


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, game: GameState) -> None:
    path = tmp_path / "games.jsonl"
    write_rows([row_of(game)], path)
    before = path.read_bytes()

    def failing() -> Any:
        yield row_of(game)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_rows(failing(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_output_that_cannot_be_written(tmp_path: Path, game: GameState) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="Cannot write"):
        write_rows([row_of(game)], tmp_path / "file" / "games.jsonl")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: not valid JSON"),
        ("[]", "line 2: a row must be a mapping"),
        ("{}", "line 2: the row has no prompt, game_state, game_id, metadata"),
        ('{"prompt": [], "game_state": {}, "game_id": "a", "metadata": {"seat": 2}}', r"line 2: metadata\.seat"),
        (
            '{"prompt": [], "game_state": {}, "game_id": "a", "metadata": {"seat": 0}}',
            "line 2: This is not a game state",
        ),
        (
            '{"prompt": [], "game_state": {}, "game_id": "a", "metadata": {"seat": 0}, "spec": ["seed"]}',
            "line 2: spec must be a mapping, but is list",
        ),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, game: GameState, line: str, says: str) -> None:
    path = tmp_path / "games.jsonl"
    write_rows([row_of(game)], path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=says) as caught:
        read_rows(path, MatchingEnv())
    assert str(path) in str(caught.value)


def test_absent_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="slim-rl generate"):
        read_rows(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="holds no game"):
        read_rows(tmp_path / "empty.jsonl")


def test_missing_files_are_made_and_kept(tmp_path: Path) -> None:
    config = small(tmp_path)
    train, held_out = ensure_games(config)
    assert held_out is not None
    before = train.read_bytes(), held_out.read_bytes()
    assert (len(read_rows(train)), len(read_rows(held_out))) == (6, 4)
    assert not {row.game_id for row in read_rows(train)} & {row.game_id for row in read_rows(held_out)}
    assert ensure_games(config) == (train, held_out)
    train.unlink()
    ensure_games(config)
    assert (train.read_bytes(), held_out.read_bytes()) == before
    assert ensure_games(small(tmp_path, num_train=3)) == (train, held_out)
    assert ensure_games(small(tmp_path, eval=None)) == (train, None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data": {"seed": 1}}, "seed=0, but the config has seed=1"),
        ({"game": {"n": 4}}, "n=3, but the config has n=4"),
        ({"game": {"scales": False}}, "scales=True"),
        ({"data": {"seat": "both"}}, "seat=0"),
    ],
)
def test_files_of_another_specification_are_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    config = small(tmp_path)
    ensure_games(config)
    other = config.model_dump()
    for section, values in change.items():
        other[section] |= values
    with pytest.raises(DataError, match=says):
        ensure_games(Config.model_validate(other))


def test_file_with_too_few_games_is_used_completely(tmp_path: Path) -> None:
    ensure_games(small(tmp_path))
    more = small(tmp_path, num_train=7).model_dump() | {"train": {"games_per_step": 6}}
    with pytest.warns(SlimWarning, match=r"has 6 of the 7 games .* `slim-rl generate CONFIG --overwrite`"):
        assert len(load_rows(Config.model_validate(more))) == 6
    with pytest.raises(DataError, match=r"has 6 games, but data\.num_train is 7 and one training step plays 7"):
        load_rows(Config.model_validate(more | {"train": {"games_per_step": 7}}))
    config = Config.model_validate(more)
    first = read_rows(config.data.train)
    ensure_games(config, overwrite=True)
    assert read_rows(config.data.train)[:6] == first and len(load_rows(config)) == 7


def test_games_from_elsewhere_are_as_many_as_they_are(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    config = small(tmp_path, num_train=2, num_eval=100)
    assert config.data.eval is not None
    write_rows([row_of(game) for game in generate_games(3, config.game, seed=5)], config.data.eval)
    assert len(load_rows(config, "eval")) == 3
    assert not recwarn.list


def test_only_the_split_that_is_asked_for_is_dealt(tmp_path: Path) -> None:
    config = small(tmp_path)
    held_out = load_rows(config, "eval")
    assert len(held_out) == 4 and not config.data.train.exists()
    assert not {row.game_id for row in load_rows(config)} & {row.game_id for row in held_out}
    assert load_rows(small(tmp_path, num_eval=0), "eval") == []


def test_train_and_eval_never_share_a_game(tmp_path: Path) -> None:
    config = small(tmp_path)
    ensure_games(config)
    path = config.data.eval
    assert path is not None
    rows = [GameRow(row.game_id, row.seat, row.game_state, row.prompt) for row in read_rows(config.data.train)]
    write_rows(rows, path)
    with pytest.raises(DataError, match="share 6 games"):
        ensure_games(config)
    # Games that the other file holds are passed over when one is made.
    config.data.train.unlink()
    ensure_games(config)
    assert not {row.game_id for row in read_rows(config.data.train)} & {row.game_id for row in rows}


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--output"):
        generate(num_games=5)
    with pytest.raises(ConfigError, match="csv"):
        generate(num_games=5, output=tmp_path / "games", format="csv")
    with pytest.raises(ConfigError, match=r"data\.num_train"):
        generate(num_games=0, output=tmp_path / "games.jsonl")


def test_the_config_names_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"slim_rl: {{game: {{n: 3}}, data: {{train: {tmp_path}/a.jsonl, num_train: 2, eval: {tmp_path}/b.jsonl, num_eval: 1}}}}"
    )
    generate(config)
    assert capsys.readouterr().out.split() == [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    generate(config, num_games=3, output=tmp_path / "c.parquet")
    assert pq.read_table(tmp_path / "c.parquet").num_rows == 3


def run_script(*options: str) -> subprocess.CompletedProcess[str]:
    root = SCRIPT.parents[1]
    return subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script(tmp_path: Path) -> None:
    path = tmp_path / "games.jsonl"
    options = ["--num_games", "3", "--output", str(path), "--n", "3", "--no-scales", "--seat", "1", "--hardness", "1.1"]
    done = run_script(*options)
    assert (done.returncode, done.stdout.strip()) == (0, str(path)), done.stderr
    rows = read_rows(path)
    assert [(row.seat, len(row.game_state["table"]), row.game_state["scale1"]) for row in rows] == [(1, 3, 1.0)] * 3
    done = run_script("--n", "3")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


class Pile(Countdown):
    """Plays on its state in place, as a pile of cards is taken from."""

    def reset(self, game_state: Any) -> tuple[str, dict[str, Any]]:
        self.pile = game_state["pile"]
        self.drawn = self.pile.pop()
        return super().reset(game_state)

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        self.pile.clear()
        return super().step(text)


def test_a_game_may_play_on_its_state_in_place(tmp_path: Path) -> None:
    env, dealt = Pile(), {"pile": [1, 2, 3]}
    path = tmp_path / "games.jsonl"
    write_rows([GameRow.of(env, "g", dealt)], path)
    (row,) = read_rows(path, env)
    play = play_dialogue(env, Says("go"), Says("go"), None, Limits(), game_state=row.game_state, id="d")
    dialogue = asyncio.run(play)
    assert dealt == row.game_state == dialogue.game_state == {"pile": [1, 2, 3]}


class Letters(Countdown):
    @classmethod
    def sample_state(cls, seed: int) -> Any:
        return ["a", "b"]


def test_a_state_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    game = {"environment": f"{__name__}.Letters", "partner": {"kind": f"{__name__}.Says"}}
    config = Config.model_validate({**game, "data": {"train": tmp_path / "train.jsonl"}})
    with pytest.raises(DataError, match=r"must be a mapping, such as .* but is list; correct the game's sample_state"):
        ensure_games(config)
