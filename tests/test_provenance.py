"""What made a log or a page stands beside it."""

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


@pytest.mark.usefixtures("unprinted")
def test_report_shows_one_provenance_entry_per_command(
    tmp_path: Path, make_dialogue: MakeDialogue, called: Callable[..., None]
) -> None:
    for words in (["bin/slim-rl", "train"], ["slim-rl", "evaluate", "--games", "3"], ["slim-rl", "train"]):
        called(*words)
        write(tmp_path, make_dialogue, words[1])
    train, evaluate = load([tmp_path]).provenance
    assert [train["command"], evaluate["command"]] == ["slim-rl train", "slim-rl evaluate --games 3"]
    assert train["packages"]["numpy"] and train["machine"]["cores"] >= 1 and train["machine"]["processor"]
    summary = analyze([tmp_path], tmp_path / "plots")
    page = summary.report.read_text(encoding="utf-8")
    assert summary.results["provenance"] == [train, evaluate]
    assert provenance.code_of(train) in page and provenance.machine_of(train) in page


def test_page_made_again_has_one_entry(tmp_path: Path, called: Callable[..., None]) -> None:
    for page in "ab":
        called("slim-rl", "lab", "page", page)
        provenance.record(tmp_path, again=True)
    assert [entry["command"] for entry in provenance.read(tmp_path)] == ["slim-rl lab page b"]
    (tmp_path / "taken").write_text("")
    provenance.record(tmp_path / "taken")  # a disk that refuses it stops nothing


def test_processes_that_begin_at_once_lose_nothing(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from slim_rl import provenance; provenance.record(Path(sys.argv[1]))"
    begun = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(i)]) for i in range(3)]
    assert [process.wait() for process in begun] == [0] * 3
    assert len({entry["command"] for entry in provenance.read(tmp_path)}) == 3
    assert {path.name for path in tmp_path.iterdir()} == {provenance.FILE, f".{provenance.FILE}.lock"}


def test_a_file_that_is_none_is_read_as_none(tmp_path: Path) -> None:
    for content in (b"", b"{", b"[1]", b'{"a": 1}', b"\xff"):
        (tmp_path / provenance.FILE).write_bytes(content)
        assert provenance.read(tmp_path) == []


TRAINED = {
    "command": "slim-rl train",
    "date": "2026-11-23",
    "commit": "2e54b8f",
    "clean": False,
    "packages": {"torch": "2"},
}
TRAINED["machine"] = {"cores": 2, "processor": "an Intel Xeon", "instructions": "avx512f", "gpus": []}


def test_sentence_names_command_code_and_machine_without_markup() -> None:
    assert provenance.sentence(TRAINED) == (
        "`slim-rl train` on 2026-11-23; commit 2e54b8f, with changes that are not committed, torch 2; 2 cores of an Intel Xeon, "
        "avx512f, no GPU."
    )
    assert provenance.code_of({"slim_rl": "0.1.0", "commit": None}) == "slim_rl 0.1.0"
    assert provenance.sentence({}).endswith("no GPU.")
    evil = {"command": "x` [click](https://evil.example) `", "date": "[now](there)", "machine": "two cores <b>"}
    said = provenance.sentence(evil)
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
