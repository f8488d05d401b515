"""What earlier versions wrote: a log of format 3 with the measures that its writer printed of it, and a run of slim_rl 0.2.0."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from slim_rl.analysis.load import load, read_dialogue
from slim_rl.backends.export import read_run
from slim_rl.config import ROOT_KEY, Config, parse_config
from slim_rl.config.reading import read_yaml
from slim_rl.config.section import GONE, fields_of, without_gone
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.measures import MEASURES, measures
from slim_rl.dialogue.record import ANNOTATIONS, FORMAT, FORMER, Dialogue
from slim_rl.errors import ConfigError
from slim_rl.runs import RunFolder
from tests.paths import ROOT

FOLDER = ROOT / "tests" / "dialogue" / "format_3"
LINES: list[Any] = [json.loads(one) for one in (FOLDER / "train.jsonl").read_text(encoding="utf-8").splitlines()]
OF_0_2_0 = ROOT / "tests" / "dialogue" / "run_0_2_0"
OLD_LINES = [json.loads(line) for line in (OF_0_2_0 / "train.jsonl").read_text(encoding="utf-8").splitlines()]
PRINTED: list[dict[str, Any]] = json.loads((FOLDER / "measures.json").read_text(encoding="utf-8"))
COLUMNS = {old: new for old, new in FORMER.items() if new in ANNOTATIONS | {"forced"} and old != "value"}


@pytest.mark.parametrize(("line", "printed"), zip(LINES, PRINTED, strict=True))
def test_measures_of_format_3_are_those_printed_then(line: dict[str, Any], printed: dict[str, Any]) -> None:
    assert line["format"] == 3
    then = {FORMER.get(name, name): value for name, value in printed.items()}
    now = measures(line)
    if not any(turn["put"] for turn in line["turns"]):  # which counted as the policy's own
        assert then == pytest.approx({name: now[name] for name in then}, nan_ok=True)
    assert now.keys() - then.keys() == {"informative_forced"}


def test_format_3_covers_every_renamed_measure() -> None:
    renamed = {old: new for old, new in FORMER.items() if new in MEASURES}
    assert renamed.keys() & PRINTED[0].keys() == renamed.keys() - {"value", "value_per_100_words"}
    for old in renamed.keys() & PRINTED[0].keys():
        assert any(printed[old] > 0 for printed in PRINTED), old


def test_columns_of_format_3_are_read_as_written() -> None:
    for line in LINES:
        dialogue = Dialogue.from_dict(line)
        assert dialogue.annotator_version == line["instrument"]
        for turn, written in zip(dialogue.turns, line["turns"], strict=True):
            for old, new in COLUMNS.items():
                assert json.loads(json.dumps(getattr(turn, new))) == written[old]


def test_settings_of_format_3_have_todays_keys() -> None:
    settings = Dialogue.from_dict(LINES[0]).settings
    assert settings["partner.explain_rejections"] is True
    assert (settings["train.reward"], settings["train.reward_args.price"]) == ("price", 0.02)
    assert not [key for key in settings if "payment" in key or "doubts" in key]


def test_format_3_written_again_is_of_todays_format(tmp_path: Path) -> None:
    read = list(read_log(FOLDER / "train.jsonl"))
    with DialogueLog(tmp_path / "log.jsonl") as log:
        for dialogue in read:
            log.append(dialogue)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {line["format"] for line in lines} == {FORMAT}
    assert not any(COLUMNS.keys() & turn.keys() for line in lines for turn in line["turns"])
    assert list(read_log(tmp_path)) == read


def test_analysis_counts_every_line_of_format_3() -> None:
    log = load([FOLDER])
    assert [(file.lines, file.dialogues, file.foreign) for file in log.files] == [(len(LINES), len(LINES), 0)]
    whole = read_dialogue(log, next(log.frame.itertuples()))
    assert whole["annotator_version"] == LINES[0]["instrument"] and whole["turns"][0]["forced"] is True


def test_log_of_0_2_0_is_read() -> None:
    log = load([OF_0_2_0 / "train.jsonl"])
    assert list(log.frame["reward"]) == [line["reward"] for line in OLD_LINES] and not log.warnings
    assert [read_dialogue(log, row)["id"] for row in log.frame.itertuples()] == [line["id"] for line in OLD_LINES]


def test_every_key_of_0_2_0_is_known_or_says_what_to_write() -> None:
    config = read_yaml(OF_0_2_0 / "config.yaml")[ROOT_KEY]
    left, gone = without_gone(config)
    assert parse_config(left).name == "old" and len(gone) > 30
    known = {key for key, _ in fields_of(Config)} | {"verl.overrides", *GONE}
    for key, instead in GONE.items():
        written = re.match(r"write ([\w.]+)", instead)
        assert written is None or {written[1], written[1].rpartition(".")[0]} & known or "player" in key, key
        with pytest.raises(ConfigError) as refused:
            parse_config({}, [f"{key}=1"])
        assert str(refused.value) == f"the config: '{key}' is not a key slim_rl knows; {instead}."


def test_run_of_0_2_0_is_not_resumed(tmp_path: Path) -> None:
    config = parse_config({"name": "old", "output_dir": str(tmp_path)})
    config.run_dir.mkdir()
    shutil.copy(OF_0_2_0 / "config.yaml", config.run_dir)
    with pytest.raises(ConfigError, match=r"whose key partner.accept_fraction, and \d+ more, is gone"):
        RunFolder(config).check()
    RunFolder(config).check(fresh=True)
    assert read_run(config.run_dir).train.steps == 2, "its checkpoints can be exported"
