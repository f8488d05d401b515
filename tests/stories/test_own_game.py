"""A game for two of one's own is one file, and no edit: it is played, logged, shown, analysed and measured on every backend. What it says of a
dialogue as a whole is a line in its `annotate`, and a column of its log from then on.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slim_rl import cli
from slim_rl.analysis import Summary, analyze
from slim_rl.analysis.load import load
from slim_rl.analysis.viewer import collect
from slim_rl.dialogue.chat import Chat
from slim_rl.dialogue.dealing import load_rows
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.worker import RolloutWorker
from tests.paths import ROOT
from tests.stories.backends import BACKENDS, Story
from tests.stories.games import Asks

GAME = "lock.Lock"


def opens(text: str) -> str:
    """What the policy says to what it reads: it asks both questions, then knows the position."""
    heard = [part.partition("<")[0] for part in text.split("<|im_start|>user\n")[2:]]
    if len(heard) < 2:
        return ("Is it odd?", "Is it high?")[len(heard)]
    return str({("yes", "no"): 1, ("no", "no"): 2, ("yes", "yes"): 3, ("no", "yes"): 4}[tuple(heard)])  # type: ignore[index]


STORY = Story(GAME, {"kind": "keeper"}, {}, opens)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Somebody's own, in which the game is."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(ROOT / "tests" / "stories" / "lock.py", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
    sys.modules.pop("lock", None)


@pytest.fixture(scope="module")
def log_dir(folder: Path, tokenizer: Any) -> Path:
    """Dialogues of the game, as a run plays and logs them."""
    chat, config = Chat(tokenizer), STORY.config(folder)
    worker, row = RolloutWorker(config, chat, Asks(chat, opens)), load_rows(config)[0]
    with DialogueLog(folder / "logs" / "train.jsonl") as log:
        for step in range(3):
            for dialogue in asyncio.run(worker.play(worker.spec(row, str(step), step=step))):
                log.append(dialogue)
    return folder / "logs"


@pytest.fixture(scope="module")
def analysed(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return analyze([log_dir], tmp_path_factory.mktemp("plots"))


def test_it_is_played_and_logged(log_dir: Path) -> None:
    for dialogue in read_log(log_dir):
        assert (dialogue.environment, dialogue.reward, len(dialogue.turns)) == (GAME, 1.0, 5)
        assert [turn.questions for turn in dialogue.turns if turn.role == "policy"] == [["parity"], ["half"], []]
        assert dialogue.columns == {"position": dialogue.game_state["position"], "side": side_of(dialogue)}


def side_of(dialogue: Any) -> str:
    return "high" if dialogue.game_state["position"] > 2 else "low"


def test_the_frame_has_its_kinds_and_its_columns(log_dir: Path) -> None:
    log, (first, *_) = load([log_dir]), list(read_log(log_dir))
    assert log.kinds == {"parity": "odd or even", "half": "high or low"}
    assert log.frame["questions/half"].tolist() == [1, 1, 1] and log.frame["questions"].tolist() == [2, 2, 2]
    assert log.frame["position"].tolist() == [first.columns["position"]] * 3
    assert log.frame["side"].tolist() == [side_of(first)] * 3


def test_it_is_shown_by_its_columns(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    side = side_of(next(read_log(log_dir)))
    where = f"side == '{side}' and position > 0 and questions > 1"
    assert "3 of 3 dialogues" in shown(log_dir, where, capsys)
    assert "policy> Is it odd?   (parity)" in shown(log_dir, where, capsys)
    assert "0 of 3 dialogues" in shown(log_dir, "position > 4", capsys)


def shown(log_dir: Path, where: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main(["show", str(log_dir), "--where", where, "--game", GAME])
    assert not ended.value.code
    return capsys.readouterr().out


def test_table_report_and_viewer_have_it(log_dir: Path, analysed: Summary) -> None:
    assert analysed.results["kinds"]["keeper"]["shares"] == {"parity": [0.5] * 3, "half": [0.5] * 3}
    assert analysed.results["question_kinds"]["half"] == "high or low" and "question_kinds" in analysed.figures
    assert analysed.results["curves"]["keeper"]["measures"]["questions"]["mean"] == [2.0] * 3
    data = collect(load([log_dir]), 9)
    position = next(read_log(log_dir)).columns["position"]
    assert data["boards"] == [{"text": f"It opens at {position}."}]
    for dialogue in data["dialogues"]:
        assert dialogue["kinds"] == ["parity", "half"] and dialogue["columns"]["position"] == position


def test_a_column_survives_the_log_where_the_game_is_not_at_hand(log_dir: Path, tmp_path: Path) -> None:
    (line, *_) = (json.loads(each) for each in (log_dir / "train.jsonl").read_text().splitlines())
    (tmp_path / "log.jsonl").write_text(json.dumps(line | {"environment": "gone.Game"}) + "\n")
    assert load([tmp_path]).frame["position"].tolist() == [line["columns"]["position"]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backends_tracker_has_its_kinds(
    backend: Any, tokenizer: Any, tokenizer_dir: Path, tmp_path: Path
) -> None:
    found = backend(STORY, tokenizer, tokenizer_dir, tmp_path)
    assert found["questions/parity"] == found["questions/half"] == 1.0 and found["questions"] == 2.0
    assert "questions/pair" not in found
