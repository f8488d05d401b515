"""Child processes and ranks: they end with what started them, import nothing from the working folder, and damaged state is one sentence."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slim_rl.config import load_config
from slim_rl.config.reading import read_yaml
from slim_rl.environment import STARTED_IN
from slim_rl.errors import ConfigError, DataError, SlimError
from slim_rl.files import read_object
from slim_rl.policies import is_model_folder
from slim_rl.processes import check_processes, environment, python_module, running
from slim_rl.provenance import read
from slim_rl.ranks import own_rank, run_size, start_together
from tests.paths import ROOT

EVIL = "from pathlib import Path\nPath('ran').touch()\nraise SystemExit('a file of the working folder was imported')\n"
MODULES = ("yaml", "queue", "typing_extensions", "numpy", "orjson")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose files are called as modules are."""
    monkeypatch.chdir(tmp_path)
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(EVIL)
    return tmp_path


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, timeout=300)


def test_python_m_and_its_workers_import_nothing_from_here(here: Path) -> None:
    words = ["generate", "--n", "3", "--num-games", "4", "--workers", "2", "--output", "games.jsonl"]
    done = python("-m", "slim_rl", *words)
    assert done.returncode == 0, done.stderr
    assert not (here / "ran").exists() and (here / "games.jsonl").exists()


def test_joined_processes_import_nothing_from_here(here: Path) -> None:
    """Each ends at once, since its config is not there, and says so: it got as far as our own code."""
    (here / "safe").mkdir()
    (here / "safe" / "main.py").write_text(
        "from slim_rl.ranks import start_together\nstart_together(2, ['train', 'missing.yaml'])"
    )
    done = python("safe/main.py")
    assert not (here / "ran").exists() and "Cannot read the config missing.yaml" in done.stderr


def test_every_python_child_is_started_by_one_function() -> None:
    assert python_module("slim_rl", "train") == [sys.executable, "-P", "-m", "slim_rl", "train"]
    for path in (ROOT / "slim_rl").rglob("*.py"):
        assert not re.search(r'sys\.executable,(?!\s*"-P")', path.read_text(encoding="utf-8")), path


def test_users_game_is_found_where_the_run_was_started(tmp_path: Path) -> None:
    """As by Ray's workers, which run elsewhere; Python's own modules come before those of that folder."""
    started, elsewhere = tmp_path / "started", tmp_path / "elsewhere"
    started.mkdir()
    elsewhere.mkdir()
    (started / "game_of_mine.py").write_text("import queue\nHELD = queue.Queue\n")
    (started / "queue.py").write_text(EVIL)
    code = "from slim_rl.environment import load_object; print(load_object('game_of_mine.HELD', 'environment', 'a.b'))"
    words = [sys.executable, "-P", "-c", code]
    told = os.environ | {STARTED_IN: str(started)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=elsewhere, env=told)
    assert done.stdout.strip() == "<class 'queue.Queue'>", done.stderr


def test_environment_is_as_before_once_the_block_is_left() -> None:
    os.environ["SLIM_RL_TEST"] = "before"
    with environment({"SLIM_RL_TEST": "within", "SLIM_RL_OTHER": "new"}):
        assert os.environ["SLIM_RL_TEST"] == "within" and os.environ["SLIM_RL_OTHER"] == "new"
    assert os.environ.pop("SLIM_RL_TEST") == "before" and "SLIM_RL_OTHER" not in os.environ


def test_more_processes_than_a_machine_has_are_refused() -> None:
    check_processes(2, "--workers")
    with pytest.raises(ConfigError, match=r"--workers=1000000 is more than .* at once; set it to \d+ or"):
        check_processes(1_000_000, "--workers")


def test_state_that_is_no_object_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for content in ("null", "[]", "7", '"text"', "[" * 100_000, "{", ""):
        path.write_text(content)
        with pytest.raises(DataError, match=rf"^{path} (is not valid JSON|must be a JSON object).*Restore it"):
            read_object(path)
        assert not is_model_folder(tmp_path)
        (tmp_path / "provenance.json").write_text(content)
        assert read(tmp_path) == []


def test_long_value_is_repeated_in_part() -> None:
    for override in ("game.n=" + "9" * 10**6 + "x", "train.steps=[" + "1," * 10_000 + "1]", "x" * 10**5 + "=1"):
        with pytest.raises(SlimError) as caught:
            load_config("matching_local", [override])
        assert len(str(caught.value)) < 2_000


def there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("killed", [False, True])
def test_a_childs_own_children_do_not_outlive_the_block(killed: bool) -> None:
    with running(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        assert there(grandchild)
        if killed:
            process.kill()
            process.wait()
    deadline = time.monotonic() + 10
    while there(grandchild) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() is not None and not there(grandchild)


def test_a_child_that_does_not_end_is_killed() -> None:
    began = time.monotonic()
    with running(["sh", "-c", "trap '' TERM; echo; sleep 600"], 0.2, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
    assert process.poll() is not None and time.monotonic() - began < 10


def test_alone_or_with_a_rank_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start_together(1, ["nothing"])
    monkeypatch.setenv("RANK", "0")
    start_together(2, ["nothing"])


def test_an_environment_that_says_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, read_it, alone in (("RANK", own_rank, 0), ("WORLD_SIZE", run_size, 1)):
        monkeypatch.delenv(variable, raising=False)
        assert read_it() == alone
        for wrong in ("x", "", "-1"):
            monkeypatch.setenv(variable, wrong)
            with pytest.raises(ConfigError, match=rf"{variable}='{wrong}' in the environment"):
                read_it()
        monkeypatch.delenv(variable)


LEFT = "WORLD_SIZE RANK LOCAL_RANK PMI_SIZE OMPI_COMM_WORLD_SIZE ACCELERATE_USE_DEEPSPEED"


@pytest.mark.parametrize("left", LEFT.split())
def test_run_size_with_a_launchers_leftover_names_it(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(left, "8")
    with pytest.raises(ConfigError, match=rf"{left}=8 in the environment .*env -u {left}"):
        run_size()
    for name, value in zip(("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"), "018h1", strict=True):
        monkeypatch.setenv(name, value)
    assert run_size() == 8, "torchrun's own"


def test_yaml_whose_aliases_explode_is_one_short_sentence(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    lines = [f"a0: &a0 [{', '.join(['lol'] * 10)}]", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 10}]" for n in range(1, 9))]
    path.write_text("\n".join([*lines, "slim_rl:", "  game: {n: *a8}"]))
    with pytest.raises(ConfigError, match=r"game\.n: ") as caught:
        load_config(path)
    assert len(str(caught.value)) < 400
    path.write_text("base: &base {n: 3}\nslim_rl:\n  game: *base\na: &a [*a]\n")
    found = read_yaml(path)
    assert found["slim_rl"] == {"game": {"n": 3}} and isinstance(found["a"], list), "of a usual size"
