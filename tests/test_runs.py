"""A run's folder: nothing of anybody else's is removed, two runs never share one, and what killed processes left goes."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from slim_rl.config import Config, parse_config
from slim_rl.errors import ConfigError, DataError, SlimError
from slim_rl.files import disk_errors, host_name, replacing, replacing_folder, write_atomically
from slim_rl.jsonl import encode
from slim_rl.runs import MARKER, RunFolder


def make_config(folder: Path, *overrides: str) -> Config:
    return parse_config({"name": "a", "output_dir": str(folder / "runs")}, overrides)


def started(config: Config, run: str = "") -> RunFolder:
    """A run that has written something of everything."""
    folder = RunFolder(config)
    with folder.begin():
        for name in ("checkpoints/checkpoint-2/COMPLETE", "model/config.json", "metrics.jsonl"):
            write_atomically(folder.path / name, "{}")
    for name in ("train.jsonl", "train-1.jsonl", "eval-000000.jsonl"):
        write_atomically(folder.logs / name, encode({"run": run or config.name}) + b"\n")
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_fresh_removes_what_the_run_wrote_and_nothing_else(tmp_path: Path) -> None:
    folder = started(make_config(tmp_path))
    write_atomically(folder.path / "notes.md", "mine")
    write_atomically(folder.logs / "notes.md", "mine")
    write_atomically(folder.logs / "solo_shy_free.jsonl", "an evaluation's")
    of_two_processes = ("train-1.jsonl", "eval-000000.jsonl", "eval-000000-1.jsonl")
    for name in of_two_processes:
        write_atomically(folder.logs / name, "")
    with RunFolder(make_config(tmp_path, "seed=5")).begin(fresh=True):
        left = {path.name for path in folder.path.iterdir()}
    assert left == {MARKER, f"{MARKER}.lock", "config.yaml", "logs", "notes.md"}
    assert {path.name for path in folder.logs.iterdir()} == {"notes.md", "solo_shy_free.jsonl"}
    assert "seed: 5" in (folder.path / "config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["model/precious", "checkpoints/precious", "metrics.jsonl", "config.yaml"])
def test_a_folder_of_somebody_elses_is_refused_and_left_as_it_is(name: str, tmp_path: Path) -> None:
    write_atomically(tmp_path / "runs" / "a" / name, "other: 1")
    before, refused = everything(tmp_path), "holds files but no configuration of a run"
    for fresh in (False, True):
        with pytest.raises(ConfigError, match=refused), RunFolder(make_config(tmp_path)).begin(fresh=fresh):
            pass
    assert everything(tmp_path) == before


def test_a_run_inside_anothers_folder_stays(tmp_path: Path) -> None:
    inner = started(make_config(tmp_path, f"output_dir={tmp_path}/runs/a", "name=b"))
    before = everything(inner.path)
    started(make_config(tmp_path))
    with RunFolder(make_config(tmp_path)).begin(fresh=True):
        pass
    assert everything(inner.path) == before


WRITTEN = """
policy.model={0}/runs/a/model
partner={{kind: yoked, args: {{replay: {0}/runs/a/logs/train.jsonl}}}}
data.train={0}/runs/a/logs/train.jsonl
"""


@pytest.mark.parametrize("override", WRITTEN.split("\n")[1:-1])
def test_a_run_does_not_read_what_it_writes_itself(override: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(model|replay|train)=.* itself writes"):
        RunFolder(make_config(tmp_path, override.format(tmp_path))).check(fresh=True)


def test_a_check_changes_nothing(tmp_path: Path) -> None:
    RunFolder(make_config(tmp_path)).check(fresh=True)
    assert not list(tmp_path.iterdir())
    folder = started(make_config(tmp_path))
    before = everything(tmp_path)
    folder.check(fresh=True)
    assert everything(tmp_path) == before


ABSENT = "train.lr_decay_steps=5 train.weight_decay=0.5 train.adam_beta1=0.5 train.adam_beta2=0.5"


@pytest.mark.parametrize("change", ABSENT.split())
def test_a_run_that_began_before_a_key_was_there_continues(change: str, tmp_path: Path) -> None:
    config, key = make_config(tmp_path), change.partition("=")[0]
    kept = started(config).path / "config.yaml"
    lines = kept.read_text(encoding="utf-8").splitlines()
    shorter = [line for line in lines if key.removeprefix("train.") not in line]
    assert len(shorter) == len(lines) - 1
    kept.write_text("\n".join(shorter), encoding="utf-8")
    RunFolder(config).check()
    with pytest.raises(ConfigError, match=key):
        RunFolder(make_config(tmp_path, "train.lr_schedule=wsd", "train.lr_decay_steps=1", change)).check()


def test_other_config_is_refused_before_any_change(tmp_path: Path) -> None:
    started(make_config(tmp_path))
    before = everything(tmp_path)
    with pytest.raises(ConfigError, match="seed"), RunFolder(make_config(tmp_path, "seed=5")).begin():
        pass
    assert everything(tmp_path) == before
    mixture = "partner={kind: mixture, mixture: {a: {share: 1, kind: mute, openai: {budget_usd: 1}}, b: {share: 1, kind: shy}}}"
    started(make_config(tmp_path, "name=mixed", mixture))
    dearer = ("name=mixed", mixture, "partner.mixture.a.openai.budget_usd=2")
    prices = "partner.openai.prices={gpt-4.1: {input: 3.0, cached: 0.5, output: 9.0}}"
    for other in (["train.steps=9"], [prices], ["arms={mute: {partner.kind: mute}}"], ["warmstart.games=9"], dearer):
        RunFolder(make_config(tmp_path, *other)).check()


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path, dead: int) -> None:
    config = make_config(tmp_path, f"data.train={tmp_path}/g0.jsonl")
    folder = started(config)
    live, host = os.getppid(), host_name()
    left = (f".config.yaml.{host}.{dead}", f".model.{host}.{dead}", f"logs/.train.jsonl.{host}.{dead}")
    # of a live process, of another machine on a shared disk, of no file of a run
    others = (
        f".model.{host}.{live}",
        f".config.yaml.elsewhere.{dead}",
        f".notes.{host}.{dead}",
        f"../.g1.{host}.{dead}",
    )
    gone, stays = ([folder.path / f"{name}.tmp" for name in names] for names in (left, others))
    for path in (*gone, *stays):
        write_atomically(path / "weights" if "model" in path.name else path, "half")
    with RunFolder(config).begin():
        assert [path for path in gone if path.exists()] == []
        assert [path for path in stays if not path.exists()] == []


def test_writing_removes_what_a_killed_writer_left(tmp_path: Path, dead: int) -> None:
    (tmp_path / f".file.{host_name()}.{dead}.tmp").touch()
    write_atomically(tmp_path / "file", "whole")
    assert everything(tmp_path) == {"file": b"whole"}


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_atomically(folder / "old", "old")

    def write(fails: bool) -> None:
        with replacing_folder(folder) as scratch:
            (scratch / "new").write_text("new")
            if fails:
                raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write(fails=True)
    assert everything(tmp_path) == {"model/old": b"old"}
    write(fails=False)
    assert everything(tmp_path) == {"model/new": b"new"}


def test_full_disk_is_one_sentence_and_other_errors_stay(tmp_path: Path) -> None:
    class SafetensorError(Exception):
        pass

    for error in (
        OSError(28, "No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing file"),
    ):
        with (
            pytest.raises(DataError, match=r"Cannot write the model .*m: .*; make room"),
            disk_errors("model", Path("m")),
        ):
            raise error
    with pytest.raises(RuntimeError, match="out of memory"), disk_errors("model", Path("m")):
        raise RuntimeError("CUDA out of memory")
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "x"):
        pass  # nothing was written
    assert not list(tmp_path.iterdir())


def test_a_folder_in_a_files_place_is_named_as_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "table.csv").mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        write_atomically(tmp_path / "table.csv", "a,b")
    assert refused.value.filename == str(tmp_path / "table.csv") and everything(tmp_path) == {}


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    (tmp_path / "out").symlink_to("/proc/self/fd/1")  # as /dev/stdout is
    for path in (pipe, tmp_path / "link", tmp_path / "out"):
        with pytest.raises(DataError, match="is a device or a pipe, not a file that can be replaced; name a file"):
            write_atomically(path, "games")
    assert pipe.is_fifo() and (tmp_path / "link").is_symlink() and (tmp_path / "out").is_symlink()


def test_second_start_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with RunFolder(make_config(tmp_path)).begin():
        for fresh in (False, True):
            second, used = RunFolder(make_config(tmp_path)), rf"process {os.getpid()} on {platform.node()}; wait"
            with pytest.raises(SlimError, match=used), second.begin(fresh):
                pass
    with RunFolder(make_config(tmp_path)).begin():
        pass
