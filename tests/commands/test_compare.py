"""Two runs compared on the games that both played."""

from __future__ import annotations

from pathlib import Path

import orjson
import pandas as pd
import pytest

from slim_rl import cli
from slim_rl.dialogue.record import Dialogue, StopReason, Turn

GAMES = 12


def compare(*arguments: str | Path, code: int = 0) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["lab", "compare", *map(str, arguments)])
    assert done.value.code == code


def log(folder: Path, run: str, rewards: list[float], start: int = 0, arm: str = "shy", phase: str = "eval") -> Path:
    """A run that asked nothing before training, and one question a game after it."""
    path = folder / run / "dialogues.jsonl"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        for step in (0, 9):
            for number, reward in enumerate(rewards):
                asked = Turn("Which?", 0, "policy", {"kind": "message"}, questions=["open"], seeking=True, pairs=[])
                turns = [asked] if step else []
                name = f"g{start + number}"
                made = Dialogue(f"{step}-{name}", name, 0, number, {"n": name}, {"model": arm}, {"kind": "shy"})
                made.arm, made.run, made.phase, made.step, made.turns = arm, run, phase, step, turns
                made.reward, made.stop_reason = (reward if step else 0.0), StopReason.FINISHED
                file.write(orjson.dumps({**made.to_dict(tokens=False), "environment": ""}) + b"\n")
    return path.parent


def test_compare_pairs_last_checkpoints_on_shared_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hard = [0.1 * (number % 5) for number in range(GAMES)]
    first = log(tmp_path, "first", hard)
    second = log(tmp_path, "second", [reward + 0.3 + 0.01 * (i % 2) for i, reward in enumerate(hard[2:])], start=2)
    compare(first, second, "--output", tmp_path / "table.csv")
    said = " ".join(capsys.readouterr().out.split())
    assert "second minus first, 10 held-out games" in said
    assert "On the same 10 games, second minus first: questions per game +0.000 (0.000 to 0.000), reward +0.305" in said
    assert said.endswith("95% intervals over games.")
    row = pd.read_csv(tmp_path / "table.csv").set_index("measure").loc["reward"]
    assert row["value"] == pytest.approx(0.305) and row["clusters"] == 10 and row["over"] == "games"
    assert row["first"] == pytest.approx(sum(hard[2:]) / 10), "before training, and games of one alone, do not count"
    assert row["low"] > 0.29 and row["p"] == pytest.approx(2 / 2**10), "games of very different rewards, paired"


def test_runs_and_files_are_called_what_they_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a long path would be broken at a terminal's width
    one, two = (
        log(tmp_path, name, [reward] * GAMES).relative_to(tmp_path) for name, reward in (("run_1", 0.5), ("run_2", 0.6))
    )
    compare(one, two)
    assert "games, run_2 minus run_1: " in capsys.readouterr().out
    compare(one, one)
    assert f"games, {one} minus {one}: " in capsys.readouterr().out


def test_runs_of_one_arm_are_compared_over_seeds_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, more in enumerate((0.1, 0.2, 0.3)):
        log(tmp_path / "new", f"new-s{seed}", [0.5 + more] * GAMES, arm="new")
        log(tmp_path / "old", f"old-s{seed}", [0.5] * GAMES, arm="old")
    compare(tmp_path / "old", tmp_path / "new")
    said = " ".join(capsys.readouterr().out.split())
    assert "new minus old: " in said and "reward +0.200 (" in said and said.endswith("over seeds and games.")


@pytest.mark.parametrize(
    ("start", "change", "words"),
    [
        (50, {}, "share no held-out game. Play both on the same games"),
        (0, {"phase": "train"}, "has no held-out games played after training"),
    ],
)
def test_what_cannot_be_paired_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: int, change: dict[str, str], words: str
) -> None:
    first, second = log(tmp_path, "first", [0.5] * 3), log(tmp_path, "second", [0.5] * 3, start, **change)
    compare(first, second, code=1)
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_several_arms_are_not_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = log(tmp_path / "both", "first", [0.5] * 3)
    log(tmp_path / "both", "second", [0.5] * 3, arm="mute")
    compare(tmp_path / "both", first, code=1)
    assert "has the arms mute, shy. Name a folder or file of one of them" in capsys.readouterr().err
