"""The driver over slime's scripts, without a GPU: stand-ins for what the scripts import, which say what is called.

Where slime's sources are not at hand, a loop that does what its scripts do stands in for them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fakes.upstream import slimes
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
    "custom_config_path": "run/config.yaml",
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
