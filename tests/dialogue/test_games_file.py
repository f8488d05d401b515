"""Games files: readable by slime and verl, never of other settings, never shared between train and eval; a user's own need only a state."""

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from slim_rl.backends.verl.data import read_game_state
from slim_rl.commands.generate import command as generate
from slim_rl.config import Config
from slim_rl.dialogue.games_file import GameRow, digest_of, ensure_games, load_rows, read_rows, write_rows
from slim_rl.errors import DataError, SlimWarning
from slim_rl.games.matching import MatchingEnv
from slim_rl.games.matching.generate import generate_games
from slim_rl.games.matching.state import GameState
from tests.dialogue.players import Countdown, Says
from tests.made import played

BOARD: dict[str, Any] = {
    "table": [[90, 10, 80], [20, 70, 30], [60, 40, 95]],
    "mask1": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "mask2": [[0, 1, 0], [0, 0, 1], [1, 0, 0]],
}
OTHER = {**BOARD, "table": [[1, 2, 3], [4, 5, 6], [7, 8, 9]]}
STATES = {"BOARD": BOARD, "OTHER": OTHER, "ROW": {"prompt": [], "game_state": BOARD, "game_id": "a"}}
FAULTY = Path(__file__).with_name("faulty_games.txt").read_text(encoding="utf-8").splitlines()


def config(folder: Path, **changes: Any) -> Config:
    data = {"train": folder / "train.jsonl", "eval": folder / "eval.jsonl", "num_train": 6, "num_eval": 4}
    sections = {"game": {"n": 3}, "data": data, "train": {"games_per_step": 1}}
    return Config.model_validate({name: {**sections[name], **changes.get(name, {})} for name in sections})


def mine(folder: Path, *lines: Any, **data: Any) -> Config:
    """A config whose training games are the user's own lines."""
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (folder / "train.jsonl").write_text(text)
    return config(folder, data={"eval": None, "num_train": len(lines), **data})


def ids(path: Path | None) -> set[str]:
    assert path is not None
    return {row.game_id for row in read_rows(path)}


def test_row_holds_all_that_a_trainer_needs(tmp_path: Path) -> None:
    generate(num_games=4, output=tmp_path / "new" / "games.jsonl", n=3, overrides=["data.seat=both"])
    generate(num_games=4, output=tmp_path / "games.parquet", n=3, overrides=["data.seat=both"])
    rows = read_rows(tmp_path / "new" / "games.jsonl")
    assert [row.seat for row in rows] == [0, 1, 0, 1] and len({row.game_id for row in rows}) == 4
    for row, column in zip(rows, pq.read_table(tmp_path / "games.parquet").to_pylist(), strict=True):
        game, line = GameState.from_dict(row.game_state), row.to_dict()
        assert game.score(line["ground_truth"]) == line["optimal_score"] == game.best_assignment_reward
        assert line["metadata"] == {"game_id": row.game_id, "seat": row.seat, "game_state": row.game_state}
        assert line["label"] == row.game_id, "for --label-key label"
        env = MatchingEnv()
        env.reset(game)
        assert row.prompt == column["prompt"] == env.prompt(row.seat)
        place = (column["extra_info"]["index"], column["extra_info"]["seat"])
        assert column["data_source"] == "slim_rl/MatchingEnv" and place == (rows.index(row), row.seat)
        assert GameState.from_dict(read_game_state(column["extra_info"])) == game
        assert json.loads(column["reward_model"]["ground_truth"]) == line["ground_truth"]


def test_missing_files_are_made_once_and_share_no_game(tmp_path: Path) -> None:
    train, held_out = ensure_games(config(tmp_path))
    assert (len(ids(train)), len(ids(held_out))) == (6, 4) and not ids(train) & ids(held_out)
    before = train.read_bytes()
    train.unlink()
    assert len(load_rows(config(tmp_path), "eval")) == 4 and not train.exists(), "only the split that is asked for"
    ensure_games(config(tmp_path))
    assert train.read_bytes() == before
    assert load_rows(config(tmp_path, data={"num_eval": 0}), "eval") == []
    assert ensure_games(config(tmp_path, data={"eval": None})) == (train, None)
    rows = [GameRow(row.game_id, row.seat, row.game_state, row.prompt) for row in read_rows(train)]
    write_rows(rows, tmp_path / "eval.jsonl")
    with pytest.raises(DataError, match="share 6 games"):
        ensure_games(config(tmp_path))
    train.unlink()  # games of the other file are passed over when one is made
    ensure_games(config(tmp_path))
    assert not ids(train) & ids(held_out)


CHANGED = {"has seed=1": {"data": {"seed": 1}}, "has n=4": {"game": {"n": 4}}, "seat=0": {"data": {"seat": "both"}}}


def test_file_of_other_settings_is_refused(tmp_path: Path) -> None:
    ensure_games(config(tmp_path))
    for sentence, changes in CHANGED.items():
        with pytest.raises(DataError, match=sentence):
            ensure_games(config(tmp_path, **changes))


def test_file_with_too_few_games_is_used_whole(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    ensure_games(config(tmp_path))
    more = config(tmp_path, data={"num_train": 7})
    first = load_rows(more)
    assert len(first) == 6 and "has 6 of the 7 games" in str(recwarn.pop(SlimWarning).message)
    ensure_games(more, overwrite=True)
    assert load_rows(more)[:6] == first and len(load_rows(more)) == 7
    write_rows([GameRow.of(MatchingEnv(), "g", game) for game in generate_games(1, more.game, seed=5)], more.data.train)
    assert len(load_rows(more.changed(data={"num_train": 9}))) == 1 and not recwarn.list


def test_games_of_ones_own_are_completed(tmp_path: Path) -> None:
    names = {"reviewers": ["Ida", "Jon", "Kim"], "papers": ["One: a", "Two: b", "Three: c"]}
    settings = mine(tmp_path, BOARD, {**OTHER, **names, "seat": 1, "game_id": "mine"}, OTHER, seat="both")
    first, named, third = load_rows(settings)
    assert [message["role"] for message in first.prompt] == ["system", "user"]
    assert "Ava Li: BLEU 90, Electra ?, GloVe ?" in first.prompt[1]["content"]
    assert first.solution == {"ground_truth": [0, 1, 2], "optimal_score": 255}
    assert (named.game_id, [row.seat for row in (first, named, third)]) == ("mine", [0, 1, 0])
    assert "Ida" in named.prompt[1]["content"]
    generate(games=settings.data.train, output=tmp_path / "whole.jsonl", overrides=["data.seat=both"])
    assert read_rows(tmp_path / "whole.jsonl") == [first, named, third]


@pytest.mark.parametrize("row", FAULTY)
def test_faulty_line_is_named(tmp_path: Path, row: str) -> None:
    """A row: the second line of a file, with all keys of the state that it names => what the sentence says."""
    words, _, sentence = row.partition(" => ")
    state, _, changes = words.partition(" ")
    line = {**STATES[state], **json.loads(changes)} if state in STATES else f"{words}\n"
    with pytest.raises(DataError, match=f"train.jsonl, line 2: .*{sentence}"):
        load_rows(mine(tmp_path, {**BOARD, "game_id": "a"}, line))


@pytest.mark.parametrize("name", [0, 2**70 + 1, "x", "\N{REPLACEMENT CHARACTER}"])
def test_ids_are_texts_digit_for_digit(name: Any, tmp_path: Path) -> None:
    written = "\ud800" if name == "\N{REPLACEMENT CHARACTER}" else name  # half a character
    rows = load_rows(mine(tmp_path, {**BOARD, "game_id": written, "seat": None}, {**OTHER, "seat": 1.0}))
    assert [row.game_id for row in rows] == [str(name), digest_of(OTHER)]
    assert [row.name.rpartition("/")[2] for row in rows] == ["0", "1"]


LINE = json.dumps({**BOARD, "game_id": "Zoë"}, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PAR1\x15\x04", "a Parquet file"),
        (gzip.compress(LINE.encode()), "a gzip archive"),
        (b"PK\x03\x04\x14\n", "a zip archive or spreadsheet"),
        (LINE.encode("utf-16"), "text in UTF-16"),
        (LINE.encode("utf-16-le"), "text in UTF-16"),
        (LINE.encode("latin-1"), "text in another encoding than UTF-8"),
        (json.dumps(BOARD).encode() + b"\n" + LINE.encode("latin-1"), "text in another encoding than UTF-8"),
        (json.dumps([BOARD], indent=1).encode(), "one JSON array"),
        (json.dumps(BOARD, indent=1).encode(), "one JSON object of several lines"),
        (bz2.compress(LINE.encode()), "a binary file"),
        (b"game_id,table\n1,2\n", "a table with separators"),
        (b"version https://git-lfs.github.com/spec/v1\n", "text of another form"),
    ],
)
def test_file_of_another_kind_is_named(content: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / "games.jsonl").write_bytes(content)
    sentence = rf"games.jsonl is {kind}.*, not JSON Lines \(one JSON object per line, in UTF-8\); convert it\.$"
    with pytest.raises(DataError, match=sentence):
        read_rows(tmp_path / "games.jsonl")


def test_file_without_games_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="slim-rl generate"):
        read_rows(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="holds no game"):
        load_rows(mine(tmp_path, "\n"))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="Cannot write"):
        write_rows([], tmp_path / "file" / "games.jsonl")


class Pile(Countdown):
    """Plays on its state in place, as a pile of cards is taken from."""

    def reset(self, game_state: Any) -> tuple[str, dict[str, Any]]:
        self.pile = game_state["pile"]
        self.pile.pop()
        return super().reset(game_state)


class Letters(Countdown):
    @classmethod
    def sample_state(cls, seed: int) -> Any:
        return ["a", "b"]


def test_game_may_play_on_its_state_in_place(tmp_path: Path) -> None:
    env, dealt = Pile(), {"pile": [1, 2, 3]}
    write_rows([GameRow.of(env, "g", dealt)], tmp_path / "games.jsonl")
    (row,) = read_rows(tmp_path / "games.jsonl", env)
    dialogue = played(env, Says("go"), Says("go"), row.game_state)
    assert dealt == row.game_state == dialogue.game_state == {"pile": [1, 2, 3]}


def test_state_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    game = {"environment": f"{__name__}.Letters", "partner": {"kind": f"{__name__}.Says"}}
    with pytest.raises(DataError, match=r"must be a mapping, such as .* but is list; correct the game's sample_state"):
        ensure_games(Config.model_validate({**game, "data": {"train": tmp_path / "train.jsonl"}}))
