"""`slim-rl generate`: files of games, whole or not at all."""

import json
import subprocess
import sys

import pytest

from slim_rl.config import load_config
from slim_rl.dialogue.games_file import load_rows, read_rows
from slim_rl.errors import SlimWarning
from slim_rl.games.matching.env import MatchingEnv
from tests.commands.shell import process
from tests.fakes.disk import largest_file
from tests.paths import ROOT


def test_a_full_disk_is_one_sentence_that_names_the_file(slim_rl, tmp_path) -> None:
    games, plots = tmp_path / "games.jsonl", tmp_path / "plots"
    generate = ("generate", "--num-games", "9", "--n", "3", "--output", games)
    assert slim_rl(*generate).returncode == 0
    for words, named in ((generate, games), (("analyze", "tests/goldens/dialogues/shy", "--output", plots), plots)):
        with largest_file(1024):
            result = slim_rl(*words)
        assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
        assert str(named) in result.stderr and "choose another" in result.stderr
    assert len(games.read_text().splitlines()) == 9, "what was there is still there"


def test_generate_writes_games(slim_rl, tmp_path) -> None:
    output = tmp_path / "games.jsonl"
    result = slim_rl("generate", "--num-games", "3", "--n", "3", "--output", str(output))
    assert result.returncode == 0, result.stderr
    assert len(output.read_text().splitlines()) == 3
    four = tmp_path / "four"
    slim_rl("generate", "smollm2_local", "--num-games", "6", "--num-test", "0", "--n", "4", "--output", four)
    (file,) = four.iterdir()
    assert {len(row.game_state["table"]) for row in read_rows(file, MatchingEnv(), (0,))} == {4}
    script = ROOT / "scripts" / "generate_data.py"
    again = tmp_path / "folder" / "games.jsonl"
    assert "wrote" not in result.stdout and result.stdout.strip() == str(output)
    subprocess.run([sys.executable, script, "--num_games", "3", "--n", "3", "--output_dir", again.parent], check=True)
    assert again.read_bytes() == output.read_bytes()
    words = [sys.executable, str(script), "--num_games", "32", "--num_test", "2"]
    one = subprocess.run([*words, "--output", "both"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert one.stdout.split() == ["both/train.jsonl", "both/test.jsonl"]
    subprocess.run([*words[:4], "--set", "data.num_eval=2"], cwd=tmp_path, check=True)
    with pytest.warns(SlimWarning, match="32 of the 6,400 games that data.num_train asks for, and these are used"):
        data = {name: tmp_path / getattr(load_config("matching").data, name) for name in ("train", "eval")}
        assert len(load_rows(load_config("matching").changed(data=data))) == 32, "the launch takes them"


def test_generate_makes_the_files_of_a_config_anew_when_told_to(slim_rl, tmp_path) -> None:
    config = tmp_path / "config.yaml"
    data = {"train": f"{tmp_path}/t.jsonl", "eval": f"{tmp_path}/e.jsonl", "num_train": 3, "num_eval": 2}
    config.write_text(json.dumps({"game": {"n": 3}, "data": data}))
    assert slim_rl("generate", config).stdout.split() == [data["train"], data["eval"]]
    refused = slim_rl("generate", config, "--set", "game.n=2")
    assert refused.returncode == 1 and "slim-rl generate CONFIG --overwrite" in refused.stderr
    assert slim_rl("generate", config, "--set", "game.n=2", "--overwrite").returncode == 0
    more = process("generate", config, "-s", "game.n=2", "-s", "data.num_train=4", "-s", "train.games_per_step=2")
    assert more.returncode == 0 and more.stderr.startswith("slim-rl: ") and "has 3 of the 4 games" in more.stderr
