"""What made a log or a page stands beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slim_rl import provenance
from slim_rl.analysis import analyze
from slim_rl.analysis.load import load
from slim_rl.dialogue.log import DialogueLog
from tests.made import MakeDialogue


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes the process one that was called by these words."""

    def call(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", [*words])
        provenance.here.cache_clear()

    yield call
    provenance.here.cache_clear()


def write(folder: Path, make_dialogue: MakeDialogue, name: str = "a") -> Path:
    with DialogueLog(folder / f"{name}.jsonl") as log:
        log.append(make_dialogue())
    return folder


def test_a_log_says_what_made_it_and_the_report_says_it_again(
    tmp_path: Path, make_dialogue: MakeDialogue, called: Callable[..., None]
) -> None:
    called("bin/slim-rl", "train", "a.yaml")
    write(write(tmp_path / "log", make_dialogue), make_dialogue, "b")
    (entry,) = provenance.read(tmp_path / "log")
    assert entry["command"] == "slim-rl train a.yaml" and entry["packages"]["numpy"]
    assert entry["machine"]["cores"] >= 1 and entry["machine"]["processor"]
    summary = analyze([tmp_path / "log"], tmp_path / "plots")
    assert summary.results["provenance"] == [entry]
    page = summary.report.read_text(encoding="utf-8")
    assert provenance.code_of(entry) in page and provenance.machine_of(entry) in page


def test_each_command_has_one_provenance_entry(
    tmp_path: Path, make_dialogue: MakeDialogue, called: Callable[..., None]
) -> None:
    for words in (["slim-rl", "train"], ["slim-rl", "evaluate", "--games", "3"], ["slim-rl", "train"]):
        called(*words)
        write(tmp_path, make_dialogue, words[1])
    assert [entry["command"] for entry in load([tmp_path]).provenance] == [
        "slim-rl train",
        "slim-rl evaluate --games 3",
    ]
    for page in "ab":
        called("slim-rl", "lab", "page", page)
        provenance.record(tmp_path, again=True)
    assert [entry["command"] for entry in provenance.read(tmp_path)] == ["slim-rl lab page b"], "made again whole"
    (tmp_path / "taken").write_text("")
    provenance.record(tmp_path / "taken")  # a disk that refuses it stops nothing


def test_processes_that_begin_at_once_lose_nothing(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from slim_rl import provenance; provenance.record(Path(sys.argv[1]))"
    begun = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(i)]) for i in range(4)]
    assert [process.wait() for process in begun] == [0] * 4
    assert len({entry["command"] for entry in provenance.read(tmp_path)}) == 4
    assert {path.name for path in tmp_path.iterdir()} == {provenance.FILE, f".{provenance.FILE}.lock"}, (
        "nothing else is left"
    )


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 1}', "\xff"])
def test_a_file_that_is_none_is_read_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / provenance.FILE).write_bytes(content.encode("latin-1"))
    assert provenance.read(tmp_path) == []


def test_words(tmp_path: Path) -> None:
    entry = {
        "command": "slim-rl train",
        "date": "2026-11-23",
        "commit": "2e54b8f",
        "clean": False,
        "packages": {"torch": "2.13.0"},
    }
    entry |= {"machine": {"cores": 2, "processor": "an Intel Xeon", "instructions": "avx512f", "gpus": []}}
    assert provenance.sentence(entry) == (
        "`slim-rl train` on 2026-11-23; commit 2e54b8f, with changes that are not committed, torch 2.13.0; 2 cores of an Intel Xeon, "
        "avx512f, no GPU."
    )
    assert provenance.code_of({"slim_rl": "0.1.0", "commit": None}) == "slim_rl 0.1.0"
    assert provenance.sentence(json.loads("{}")).endswith("no GPU.")


def test_what_another_says_of_a_log_is_no_markup() -> None:
    said = provenance.sentence(
        {"command": "x` [click](https://evil.example) `", "date": "[now](there)", "machine": "two cores <b>"}
    )
    assert said.count("`") == 2 and "\\[now]" in said and "\\<b>" in said


URL = "slim-rl evaluate --set partner.openai.base_url=http://{}@host:81/v1 --note a@b"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("/ray/workers/default_worker.py --redis-password=secret --node-ip-address=10.0.0.1", "a worker of Ray"),
        ("/venv/bin/slim-rl train matching_local", "slim-rl train matching_local"),
        ("/venv/lib/slim_rl/__main__.py train matching_local", "slim-rl train matching_local"),
        ("/venv/lib/slim_rl/cli.py train matching_local", "slim-rl train matching_local"),
        (URL.format("bob:s3cr@t"), URL.format("***")),
    ],
)
def test_command_is_named_without_paths_or_secrets(called: Callable[..., None], words: str, command: str) -> None:
    called(*words.split())
    assert provenance.here()["command"] == command
    assert "s3cr" not in provenance.sentence({**provenance.here(), "command": words}), "of a log of before"
