"""The script that runs slime's: when the run is stopped, the step trained last is saved, by slime's own calls and under its number.

Where slime's sources are at hand its own train.py and train_async.py are run, between stand-ins for its GPUs, and with its own actor where
the engine's weights are asked for; otherwise a loop that does what they do.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slim_rl.backends.slime.driver import _sentence
from slim_rl.errors import RunStopped
from tests.fakes.upstream import NO_SLIME, slimes
from tests.paths import ROOT

# What slime's scripts import, without a GPU. A remote call runs at once; what it raises comes out of ray.get, as with Ray.
STAND_INS = {
    "ray": """
class RayTaskError(RuntimeError):
    pass

class Done:
    def __init__(self, call):
        try:
            self.value, self.error = call(), None
        except Exception as error:
            made = type("RayTaskError(It)", (RayTaskError, type(error)), {"cause": error})
            self.error = made(f"remote traceback\\n{type(error).__name__}: {error}")

def get(done):
    if isinstance(done, list):
        return [get(one) for one in done]
    if done.error:
        raise done.error
    return done.value
""",
    "slime.ray.placement_group": """
import json, sys
from ray import Done
from slim_rl.errors import Diverged, RunStopped

def say(*words):
    print("event", *words)

class Remote:
    def __init__(self, call):
        self.call = call
    def remote(self, *args, **kwargs):
        return Done(lambda: self.call(*args, **kwargs))

trained = None  # the step that was trained last

class Manager:
    def __init__(self, args):
        self.args = args
    def __getattr__(self, name):
        def call(number=None, **kwargs):
            if f"{name} {number}" == self.args.stop:
                raise RunStopped("Training stops: the budget is spent.")
            if f"{name} {number}" == self.args.diverges:
                raise Diverged("Its weights are unusable.")
            if name == self.args.silent and trained == 4:
                raise TimeoutError("flushing the cache")
            if name in ("generate", "save", "offload", "dispose"):
                say(f"manager.{name}", *([] if number is None else [number]))
        return Remote(call)

class Group:
    def __init__(self, name, args):
        self.name, self.args, self.trained = name, args, None
    def async_train(self, number, data, external_data=None):
        global trained
        say(f"{self.name}.train", number)
        self.trained = trained = number
        if json.loads(sys.argv[1]).get("nan") == number:
            raise RuntimeError("Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass')")
        return []
    def save_model(self, number, force_sync=False):
        say(f"{self.name}.save", number, *["sync"] * force_sync)
    def update_weights(self):
        if json.loads(sys.argv[1]).get("gone", -1) == self.trained:
            raise RuntimeError("remote traceback\\nConnectionError: refused")
    def clear_memory(self):
        pass

def create_placement_groups(args):
    return {"rollout": None}

def create_rollout_manager(args, pg):
    return Manager(args), None

def create_training_models(args, pgs, manager):
    return Group("actor", args), Group("critic", args) if args.use_critic else None
""",
    "slime.utils.arguments": """
import json, sys
from argparse import ArgumentParser, Namespace

def parse_args():
    parser = ArgumentParser()
    parser.add_argument("--global-batch-size")
    parser.parse_known_args()  # which takes no notice of what it does not know
    return Namespace(**json.loads(sys.argv[1]))
""",
    "slime.utils.misc": """
def should_run_periodic_action(step, interval, epoch=None, steps=None):
    return interval is not None and ((step + 1) % interval == 0 or step + 1 == steps)
""",
    "slime.utils.logging_utils": """
def configure_logger(): pass
init_tracking = lambda args: None
def finish_tracking(args): print("event finish")
""",
    "slime.observability.logging_utils": "from slime.utils.logging_utils import *",
}
LIKE_SLIMES = """
import ray
from slime.ray.placement_group import create_rollout_manager, create_training_models
from slime.utils.arguments import parse_args
from slime.utils.logging_utils import finish_tracking
from slime.utils.misc import should_run_periodic_action

def train(args):
    manager, _ = create_rollout_manager(args, None)
    actor, critic = create_training_models(args, None, manager)
    for step in range(args.start_rollout_id, args.num_rollout):
        data = ray.get(manager.generate.remote(step))
        if args.offload_rollout:
            ray.get(manager.offload.remote())
        if critic:
            critic.async_train(step, data)
        if not critic or step >= args.num_critic_only_steps:
            ray.get(actor.async_train(step, data))
        if should_run_periodic_action(step, args.save_interval, None, args.num_rollout):
            actor.save_model(step)
            ray.get(manager.save.remote(step))
        if args.offload_rollout:
            ray.get(manager.onload_weights.remote())
        actor.update_weights()
        if args.offload_rollout:
            ray.get(manager.onload_kv.remote())
        if should_run_periodic_action(step, args.eval_interval):
            ray.get(manager.eval.remote(step))
    ray.get(manager.dispose.remote())
    finish_tracking(args)
"""
SCRIPTS = [checkout / name for checkout in slimes() for name in ("train.py", "train_async.py")] or [None]
TAKING_TURNS = [script for script in SCRIPTS if script is None or script.name == "train.py"]
ARGUMENTS = {
    "start_rollout_id": 0,
    "num_rollout": 8,
    "save_interval": 3,
    "eval_interval": 2,
    "skip_eval_before_train": True,
    "num_critic_only_steps": 0,
    "rollout_global_dataset": True,
    "update_weights_interval": 1,
    **dict.fromkeys(("use_critic", "release_train", "offload_rollout", "offload_train", "colocate"), False),
    "check_weight_update_equal": False,
    "stop": "",
    "diverges": "",
    "silent": "",
}


def drive(folder: Path, script: Path | None, *flags: str, **arguments: Any) -> tuple[int, list[str], str]:
    """Exit code, events and stderr of a run."""
    for name, text in STAND_INS.items():
        path = folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for parent in path.relative_to(folder).parents:
            if str(parent) != ".":
                (folder / parent / "__init__.py").touch()
    if script is None:
        (folder / "train.py").write_text(LIKE_SLIMES)
    else:
        shutil.copy(script, folder / "train.py")
    done = subprocess.run(
        [sys.executable, "-m", "slim_rl.backends.slime.driver", str(folder / "train.py"), json.dumps(ARGUMENTS | arguments), *flags],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    events = [line.removeprefix("event ") for line in done.stdout.splitlines() if line.startswith("event ")]
    said = [line for line in done.stdout.splitlines() if line.startswith("slim-rl: ")]
    return done.returncode, events, "\n".join([*said, done.stderr])


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
@pytest.mark.parametrize("stop", ["generate 5", "eval 3", "eval 5"])
def test_a_stopped_run_saves_the_step_it_trained_last(tmp_path: Path, script: Path | None, stop: str) -> None:
    code, events, said = drive(tmp_path, script, stop=stop)
    assert code == 1
    assert said.splitlines()[-1] == "slim-rl: Training stops: the budget is spent."
    trained = max(int(event.split()[1]) for event in events if event.startswith("actor.train"))
    assert f"the {trained + 1} steps trained so far are saved; the same command goes on from there" in said
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
def test_where_the_games_go_on_is_saved_before_the_next_are_drawn(tmp_path: Path, script: Path | None) -> None:
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
def test_the_first_rollouts_of_a_run_that_goes_on_are_the_policys(slime: Path | None) -> None:
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
        (["--global-batch-size", "8", "--global-batch-size=16"], "--global-batch-size is given 2 times; slime takes the last"),
    ],
)  # fmt: skip
def test_a_flag_that_slime_would_ignore_ends_the_run_before_anything_starts(
    tmp_path: Path, flags: list[str], words: str
) -> None:
    code, events, said = drive(tmp_path, SCRIPTS[0], *flags)
    assert code == 1 and words in said and not events
    assert drive(tmp_path, SCRIPTS[0], "--global-batch-size", "8")[0] == 0


def test_another_error_is_slimes_business(tmp_path: Path) -> None:
    code, events, said = drive(tmp_path, None, stop="", save_interval="often")
    assert code == 1 and "TypeError" in said and "actor.save" not in " ".join(events)


def test_what_ray_makes_of_a_stop_is_a_stop() -> None:
    ray = pytest.importorskip("ray.exceptions")
    remote = ray.RayTaskError("log_rollout", "a remote traceback", RunStopped("Training stops: why."))
    error = remote.as_instanceof_cause()
    assert isinstance(error, RunStopped) and _sentence(error) == "Training stops: why."
