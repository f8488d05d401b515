"""The driver over slime's own train.py and train_async.py, without a GPU: stand-ins for what the scripts import, which note every call."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock

from slim_rl.backends.slime import driver
from slim_rl.errors import Diverged, RunStopped
from tests.fakes.upstream import NO_SLIME, slimes
from tests.paths import ROOT

SCRIPTS = [checkout / name for checkout in slimes() for name in ("train.py", "train_async.py")]
SWITCHES = ("release_train", "offload_rollout", "offload_train", "colocate", "check_weight_update_equal", "use_critic")
ARGUMENTS = {
    "start_rollout_id": 0, "num_rollout": 8, "save_interval": 3, "eval_interval": 2, "num_critic_only_steps": 0,
    "skip_eval_before_train": True, "rollout_global_dataset": True, "update_weights_interval": 1, **dict.fromkeys(SWITCHES, False),
}  # fmt: skip


class Refused(RuntimeError):
    """Ray's error of a call in another process: an instance of the cause's class too."""


def raised_remotely(error: Exception) -> Exception:
    made = type("RayTaskError(It)", (Refused, type(error)), {"cause": error})
    return made(f"remote traceback\n{type(error).__name__}: {error}")  # type: ignore[no-any-return]


class Stack:
    """slime's actors. `failing`: a call such as "generate 5" -> what it raises."""

    def __init__(self, failing: dict[str, Exception]) -> None:
        self.failing, self.events = failing, list[str]()

    def note(self, call: str) -> None:
        self.events.append(call)
        if call in self.failing:
            raise raised_remotely(self.failing[call])

    def manager(self) -> Any:
        def method(name: str) -> Any:
            # a remote call runs at once; what it raises comes out of ray.get, as with Ray
            return SimpleNamespace(remote=lambda step="", **_: lambda: self.note(f"{name} {step}".strip()))

        return type("Manager", (), {"__getattr__": lambda _, name: method(name)})()

    def group(self, name: str, args: Namespace) -> Any:
        return SimpleNamespace(
            args=args, clear_memory=lambda: None, update_weights=lambda: None,
            async_train=lambda step, data, **_: lambda: self.note(f"{name} {step}"),
            save_model=lambda step, force_sync=False: self.note(f"{name} saved {step}"),
        )  # fmt: skip


def get(done: Any) -> Any:
    return [get(each) for each in done] if isinstance(done, list) else done()


Drive = Callable[..., tuple[int, list[str]]]


@pytest.fixture(params=SCRIPTS, ids=str)
def drive(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Drive:
    """Runs slime's script with calls that fail and arguments. Returns the exit code and the events."""

    def driven(failing: dict[str, Exception] | None = None, **arguments: Any) -> tuple[int, list[str]]:
        stack, args = Stack(failing or {}), Namespace(**ARGUMENTS | arguments)
        models = stack.group("actor", args), stack.group("critic", args) if args.use_critic else None
        due = lambda step, interval, epoch=None, steps=None: (step + 1) % interval == 0 or step + 1 == steps  # noqa: E731
        none = lambda *_: None  # noqa: E731
        logging = {"configure_logger": none, "init_tracking": none, "finish_tracking": lambda _: stack.note("finish")}
        groups = {
            "create_placement_groups": lambda args: {"rollout": None},
            "create_rollout_manager": lambda args, group: (stack.manager(), None),
            "create_training_models": lambda args, groups, manager: models,
        }
        stand_ins = {
            "ray": {"get": get},
            "slime.ray.placement_group": groups,
            "slime.utils.arguments": {"parse_args": lambda: args},
            "slime.utils.misc": {"should_run_periodic_action": due},
            "slime.utils.logging_utils": logging,
            "slime.observability.logging_utils": logging,
        }
        for name, members in stand_ins.items():
            for package in [*(name.rsplit(".", n)[0] for n in range(name.count("."), 0, -1)), name]:
                module = ModuleType(package)
                module.__path__ = []  # type: ignore[attr-defined]
                vars(module).update(members if package == name else {})
                monkeypatch.setitem(sys.modules, package, module)
        return driver.train(driver._load(request.param), args), stack.events

    return driven


def saved(events: list[str]) -> list[str]:
    return [event.removeprefix("actor saved ") for event in events if event.startswith("actor saved")]


STOP = RunStopped("Training stops: the budget is spent.")


NOT_FINITE = "Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass')"


@pytest.mark.parametrize(
    ("stop", "last", "steps"),
    [("generate 5", 4, "24"), ("eval 3", 3, "23"), ("eval 5", 5, "25"), ("generate 0", -1, "")],
)
def test_a_stopped_run_saves_the_step_it_trained_last(
    drive: Drive, stop: str, last: int, steps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, events = drive({stop: STOP})
    said = capsys.readouterr()
    assert code == 1 and said.err == "slim-rl: Training stops: the budget is spent.\n", "without Ray's remote traceback"
    assert saved(events) == list(steps)
    assert (f"the {last + 1} steps trained so far are saved" in said.out) == (last >= 0)
    assert last < 0 or f"save {last}" in events, "where the data goes on"
    assert events[-2:] == ["dispose", "finish"]


def test_a_run_that_is_not_stopped_is_slimes_own(drive: Drive) -> None:
    code, events = drive()
    assert code == 0 and saved(events) == ["2", "5", "7"]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("generate 4", Diverged("Its weights are unusable."), "unusable"),
        ("actor 4", RuntimeError(NOT_FINITE), "gradient is not a finite number"),
    ],
)
def test_a_run_that_has_diverged_saves_nothing_more(
    drive: Drive, call: str, error: Exception, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, events = drive({call: error})
    said = capsys.readouterr().err
    assert code == 1 and words in said and "lower train.learning_rate" in said
    assert saved(events) == ["2"] and events[-2:] == ["dispose", "finish"]


@pytest.mark.parametrize("drive", SCRIPTS[::2], indirect=True, ids=str)
def test_engines_make_room_for_a_save_and_a_critic_is_saved_too(drive: Drive) -> None:
    _, events = drive({"generate 2": STOP}, offload_rollout=True, use_critic=True)
    assert events[-6:] == ["offload", "actor saved 1", "critic saved 1", "save 1", "dispose", "finish"]


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


def test_flags_unknown_to_slime_and_a_folder_in_use_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "train.py").write_text(
        "from argparse import ArgumentParser, Namespace\n"
        "def parse_args():\n"
        "    parser = ArgumentParser()\n"
        "    parser.add_argument('--global-batch-size')\n"
        "    parser.parse_known_args()  # which takes no notice of what it does not know\n"
        f"    return Namespace(custom_config_path={str(tmp_path / 'run' / 'config.yaml')!r})\n"
    )
    script = str(tmp_path / "train.py")
    monkeypatch.setattr(sys, "argv", sys.argv)
    assert driver.main([script, "--global-bath-size", "8"]) == 1
    unknown = "slime has no flag --global-bath-size and would ignore it; did you mean --global-batch-size?"
    assert unknown in capsys.readouterr().err
    with FileLock(tmp_path / "run" / ".slim-rl-run.lock"):
        assert driver.main([script, "--global-batch-size", "8"]) == 1
    assert "in use" in capsys.readouterr().err
