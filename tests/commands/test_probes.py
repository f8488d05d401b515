"""The probes of docs/how-to/evaluate-and-compare.md: each command is run as it is printed, but for who plays, and does what is said of it."""

import re
import shlex
from pathlib import Path

import pytest

from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue
from slim_rl.games.matching.study.audit import faults as partner_faults
from tests.commands.shell import run
from tests.paths import ROOT

GAMES = 6


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Dialogue]]:
    """The dialogues of each probe: a scripted player's, which asks three random questions, and the tiny model's with an open book."""
    folder = tmp_path_factory.mktemp("probes")
    small = [f"data.{name}={folder}/{name}.jsonl" for name in ("train", "eval")]
    small += ["data.num_train=8", f"data.num_eval={GAMES}"]
    text = (ROOT / "docs" / "how-to" / "evaluate-and-compare.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Probes of a trained policy")
    lines = re.search(r"```bash\n(.*?)```", section, re.S)[1].splitlines()  # type: ignore[index]
    found = {}
    for number, line in enumerate(lines):
        words = shlex.split(line)[1:]
        at, out = words.index("--checkpoint"), words.index("--output") + 1
        words[out] = str(folder / str(number))
        words[1] = str(ROOT / words[1])
        words[at : at + 2] = ["--policy", "forced:3"]
        if "game.open_book=true" in words:
            words[at : at + 2] = ["--checkpoint", str(ROOT / "data" / "warmstart")]
        run(*words, *(word for setting in small for word in ("--set", setting)))
        for file in Path(words[out]).glob("*.jsonl"):
            found[f"{number}/{file.stem}"] = sorted(read_log(file), key=lambda dialogue: dialogue.game_id)
    return found


def test_they_are_five_and_play_the_same_games(played: dict[str, list[Dialogue]]) -> None:
    names = {name.partition("/")[2].split("_")[1] + name[0] for name in played}
    assert names == {"shy0", "mute0", "forthcoming0", "erring1", "shy2"}
    assert len({tuple(d.game_id for d in dialogues) for dialogues in played.values()}) == 1
    assert not any(d.failed for dialogues in played.values() for d in dialogues)


def test_mute_reveals_nothing_and_forthcoming_everything(played: dict[str, list[Dialogue]]) -> None:
    shy, mute, forthcoming = (played[f"0/forced3_{name}_free"] for name in ("shy", "mute", "forthcoming"))
    for one, other, third in zip(shy, mute, forthcoming, strict=True):
        assert measures(one)["questions"] == measures(other)["questions"] == 3
        assert (measures(one)["answered"], measures(other)["answered"]) == (1, 0)
        assert measures(one)["informative_pairs"] > measures(other)["informative_pairs"] == 0
        after = [turn.unknown for turn in third.turns if turn.role == "policy"]
        assert after[0] is not None and after[1] is not None and after[1] <= after[0] - 8
        assert measures(one)["unknown"] == measures(other)["unknown"] == after[0]


def test_the_lying_partner_tells_no_true_score(played: dict[str, list[Dialogue]]) -> None:
    for truth, lies in (("0/forced3_shy_free", False), ("1/forced3_erring_free", True)):
        faults = [partner_faults(dialogue)["stated a false value"] for dialogue in played[truth]]
        assert all(false == stated * lies and stated for false, stated in faults)


def test_an_open_book_shows_what_the_partner_sees(played: dict[str, list[Dialogue]]) -> None:
    (book,) = (dialogues for name, dialogues in played.items() if name.startswith("2/"))
    for closed, opened in zip(played["0/forced3_shy_free"], book, strict=True):
        shown = [dialogue.prompt[-1]["content"].count("?") for dialogue in (closed, opened)]
        assert shown[0] > shown[1] + 8
        assert measures(opened)["unknown"] == measures(closed)["unknown"], "by the deal"
