"""The script that runs slime's: when the run is stopped, the step trained last is saved, by slime's own calls and under its number.

Where slime's sources are at hand its own train.py and train_async.py are run, between stand-ins for its GPUs, and with its own actor where
the engine's weights are asked for; otherwise a loop that does what they do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from slim_rl.backends.slime.driver import _message
from slim_rl.errors import RunStopped
from tests.backends.slime_drive import SCRIPTS, TAKING_TURNS, drive
from tests.fakes.upstream import NO_SLIME, slimes
from tests.paths import ROOT


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
@pytest.mark.parametrize("stop", ["generate 5", "eval 3", "eval 5"])
def test_a_stopped_run_saves_the_step_it_trained_last(tmp_path: Path, script: Path | None, stop: str) -> None:
    code, events, said = drive(tmp_path, script, stop=stop)
    assert code == 1
    assert said.splitlines()[-1] == "slim-rl: Training stops: the budget is spent."
    trained = max(int(event.split()[1]) for event in events if event.startswith("actor.train"))
    assert f"the {trained + 1} steps trained so far are saved; the same command resumes from there" in said
    assert trained == (4 if stop.startswith("generate") else int(stop.split()[1]))
    saved = [event for event in events if event.startswith("actor.save")]
    if trained == 5:  # slime itself had just saved it
        assert saved == ["actor.save 2", "actor.save 5"]
    else:
        assert saved[-1] == f"actor.save {trained} sync"
        assert f"manager.save {trained}" in events, "where the data goes on"
    assert events[-2:] == ["manager.dispose", "finish"]


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_a_run_that_is_not_stopped_is_slimes_own(tmp_path: Path, script: Path | None) -> None:
    code, events, said = drive(tmp_path, script)
    assert code == 0, said
    assert [event.split()[1] for event in events if event.startswith("actor.save")] == ["2", "5", "7"]


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_driver_saves_data_position_before_next_rollout(tmp_path: Path, script: Path | None) -> None:
    """And before the model: a run that ends between the two goes on from the model's number, with the games after it."""
    _, events, _ = drive(tmp_path, script)
    assert [event for event in events if event.startswith("manager.")][:-1] == [
        f"manager.{call} {step}" for step in range(8) for call in ("generate", "save")
    ]
    for step in (2, 5, 7):
        model = next(event for event in events if event.startswith(f"actor.save {step}"))
        assert events.index(f"manager.save {step}") < events.index(model)


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
@pytest.mark.parametrize(
    ("how", "words"),
    [({"diverges": "generate 4"}, "weights are unusable"), ({"nan": 4}, "gradient is not a finite number")],
)
def test_a_run_that_has_diverged_saves_nothing_more(
    tmp_path: Path, script: Path | None, how: dict[str, Any], words: str
) -> None:
    code, events, said = drive(tmp_path, script, **how)
    assert code == 1 and "Traceback" not in said
    assert words in said and "lower train.learning_rate" in said
    assert [event for event in events if event.startswith("actor.save")] == ["actor.save 2"]
    assert events[-2:] == ["manager.dispose", "finish"]


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_engines_that_are_gone_end_the_run_and_lose_no_step(tmp_path: Path, script: Path | None) -> None:
    code, events, said = drive(tmp_path, script, gone=4)
    assert code == 1
    assert said.endswith("slim-rl: Training stops: the engines took no new weights (ConnectionError: refused).\n")
    assert [event for event in events if event.startswith("actor.save")] == ["actor.save 2", "actor.save 4 sync"]
    assert events[-2:] == ["manager.dispose", "finish"]


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_nothing_is_saved_before_anything_is_trained(tmp_path: Path, script: Path | None) -> None:
    code, events, _ = drive(tmp_path, script, stop="generate 0")
    assert code == 1 and events[-2:] == ["manager.dispose", "finish"]
    assert not [event for event in events if event.startswith("actor.")]


@pytest.mark.parametrize("script", TAKING_TURNS, ids=str)
@pytest.mark.parametrize("call", ["offload", "onload_weights", "onload_kv"])
def test_engines_that_do_not_answer_end_the_run_and_lose_no_step(
    tmp_path: Path, script: Path | None, call: str
) -> None:
    """Where training and playing take turns on the same GPUs: the calls that make room for the one or the other."""
    code, events, said = drive(tmp_path, script, silent=call, offload_rollout=True)
    assert code == 1 and "Traceback" not in said
    assert "Training stops: the engines do not answer (TimeoutError: flushing the cache)." in said
    assert "the 5 steps trained so far are saved" in said
    assert [event for event in events if event.startswith("actor.save")][-1] == "actor.save 4 sync"
    assert events[-2:] == ["manager.dispose", "finish"]


@pytest.mark.parametrize("script", TAKING_TURNS, ids=str)
def test_the_engines_make_room_and_a_critic_is_saved_too(tmp_path: Path, script: Path | None) -> None:
    _, events, _ = drive(tmp_path, script, stop="generate 2", offload_rollout=True)
    assert events.index("manager.offload") < events.index("actor.save 1 sync")
    _, events, _ = drive(tmp_path, script, stop="generate 2", use_critic=True, num_critic_only_steps=9)
    assert [event for event in events if event.startswith(("actor.save", "critic.save"))] == ["critic.save 1 sync"]


@pytest.mark.parametrize("slime", slimes() or [None], ids=str)
def test_driver_resumed_run_samples_from_the_policy_first(slime: Path | None) -> None:
    """By slime's own actor, which holds the reference of its KL term after it has started."""
    if slime is None:
        pytest.skip(NO_SLIME)
    command = [sys.executable, "-m", "tests.fakes.slime_actor", str(slime), "train.py", "train_async.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = ["train.py", "sent", "1.0", "train_async.py", "sent", "1.0"]
    assert done.stdout.split() == said, "the engine has the weights that were saved"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--global-bath-size", "8"], "slime has no flag --global-bath-size and would ignore it; did you mean --global-batch-size?"),
    ],
)  # fmt: skip
def test_driver_refuses_flags_unknown_to_slime(tmp_path: Path, flags: list[str], words: str) -> None:
    code, events, said = drive(tmp_path, SCRIPTS[0], *flags)
    assert code == 1 and words in said and not events
    assert drive(tmp_path, SCRIPTS[0], "--global-batch-size", "8")[0] == 0


def test_a_folder_in_use_ends_the_job_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run" / ".slim-rl-run.lock"):
        code, events, said = drive(tmp_path, SCRIPTS[0])
    assert code == 1 and not events and "The run 'run' in run is in use by another process" in said


def test_another_error_is_slimes_business(tmp_path: Path) -> None:
    code, events, said = drive(tmp_path, None, stop="", save_interval="often")
    assert code == 1 and "TypeError" in said and "actor.save" not in " ".join(events)


def test_what_ray_makes_of_a_stop_is_a_stop() -> None:
    ray = pytest.importorskip("ray.exceptions")
    remote = ray.RayTaskError("log_rollout", "a remote traceback", RunStopped("Training stops: why."))
    error = remote.as_instanceof_cause()
    assert isinstance(error, RunStopped) and _message(error) == "Training stops: why."
