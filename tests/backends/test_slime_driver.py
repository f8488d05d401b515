"""The driver over slime's own train.py and train_async.py, without a GPU: stand-ins for what the scripts import, which note every call."""

import importlib
import sys
from argparse import Namespace
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock

from slim_rl.backends.slime import driver
from slim_rl.errors import Diverged, RunStopped
from tests.fakes.upstream import slimes

SCRIPTS = [checkout / name for checkout in slimes() for name in ("train.py", "train_async.py")]
SWITCHES = ("release_train", "offload_rollout", "offload_train", "colocate", "check_weight_update_equal", "use_critic")
ARGUMENTS = {
    "start_rollout_id": 0, "num_rollout": 8, "save_interval": 3, "eval_interval": 2, "num_critic_only_steps": 0,
    "skip_eval_before_train": True, "rollout_global_dataset": True, "update_weights_interval": 1, **dict.fromkeys(SWITCHES, False),
    "debug_rollout_only": False,
}  # fmt: skip
STOP = RunStopped("Training stops: the budget is spent.")
NOT_FINITE = "Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass')"


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

    def actor(self) -> Any:
        def method(name: str) -> Any:
            # a remote call runs at once; what it raises comes out of ray.get, as with Ray
            return SimpleNamespace(remote=lambda given="", **_: lambda: self.note(f"{name} {given}".strip()))

        return type("Actor", (), {"__getattr__": lambda _, name: method(name)})()

    def group(self, name: str, args: Namespace) -> Any:
        return SimpleNamespace(
            args=args, clear_memory=lambda: None, update_weights=lambda: f"{name} 4" in self.events and self.note("weights"), _actor_handlers=[self.actor()],
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
            "create_rollout_manager": lambda args, group: (stack.actor(), None),
            "create_training_models": lambda args, groups, manager: models,
        }
        stand_ins: dict[str, dict[str, Any]] = {
            **{name: {} for name in ("slime", "slime.ray", "slime.utils", "slime.observability")},
            "ray": {"get": get},
            "slime.ray.placement_group": groups,
            "slime.utils.arguments": {"parse_args": lambda: args},
            "slime.utils.misc": {"should_run_periodic_action": due},
            "slime.utils.logging_utils": logging,
            "slime.observability.logging_utils": logging,
        }
        for name, members in stand_ins.items():
            module = ModuleType(name)
            vars(module).update(members, __path__=[])
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.syspath_prepend(request.param.parent)
        monkeypatch.setitem(sys.modules, request.param.stem, None)  # so that it is forgotten at the end
        del sys.modules[request.param.stem]
        return driver.train(importlib.import_module(request.param.stem), args), stack.events

    return driven


@pytest.mark.parametrize(
    ("call", "error", "saved", "message"),
    [
        ("generate 5", STOP, [2, 4], "the 5 steps trained so far are saved"),
        ("eval 3", STOP, [2, 3], "the 4 steps trained so far are saved"),
        ("eval 5", STOP, [2, 5], "the 6 steps trained so far are saved"),
        ("weights", RuntimeError("an engine is gone"), [2, 4], "the engines took no new weights: an engine is gone"),
        ("generate 0", STOP, [], ""),
        ("generate 4", Diverged("Its weights are unusable."), [2], "Training stops. Its weights are unusable. Nothing is"),
        ("actor 4", RuntimeError(NOT_FINITE), [2], "The gradient is not a finite number. Nothing is saved now; lower train."),
    ],
)  # fmt: skip
def test_a_stopped_run_saves_its_last_step_unless_diverged(
    drive: Drive, call: str, error: Exception, saved: list[int], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, events = drive({call: error})
    said = capsys.readouterr()
    assert [event for event in events if event.startswith("actor saved")] == [f"actor saved {step}" for step in saved]
    assert code == 1 and events[-2:] == ["dispose", "finish"] and message in said.out + said.err
    if error is STOP:
        assert said.err == "slim-rl: Training stops: the budget is spent.\n", "without Ray's remote traceback"
        assert not saved or events.index(f"save {saved[-1]}") < events.index(f"actor saved {saved[-1]}"), (
            "the place in the games"
        )
        assert bool(said.out) == bool(saved)


def test_a_run_that_is_not_stopped_is_slimes_own(drive: Drive) -> None:
    code, events = drive()
    saved = [(event, before) for before, event in pairwise(events) if " saved" in event]
    assert code == 0 and saved == [(f"actor saved {step}", f"save {step}") for step in (2, 5, 7)]


@pytest.mark.parametrize("drive", SCRIPTS[::2], indirect=True, ids=str)
def test_engines_make_room_for_a_save_and_a_critic_is_saved_too(drive: Drive) -> None:
    _, events = drive({"generate 2": STOP}, offload_rollout=True, use_critic=True)
    assert events[-7:-2] == ["offload", "save 1", "actor saved 1", "save 1", "critic saved 1"]


@pytest.mark.parametrize("switch", ["use_kl_loss", "use_opd", "keep_old_actor", "offload_train use_kl_loss", ""])
def test_driver_resumed_run_samples_from_the_policy_first(drive: Drive, switch: str) -> None:
    """slime's actor holds the second set of weights after it has started: see docs/upstream.md, and tests/slime_cpu for the rest."""
    _, events = drive(**dict.fromkeys(switch.split(), True))
    assert events[: events.index("generate 0")] == ["_switch_model actor"] * (len(switch.split()) == 1), "or slime does"


def test_flags_unknown_to_slime_and_a_folder_in_use_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, folder = str(tmp_path / "train.py"), tmp_path / "run"
    folder.mkdir()
    Path(script).write_text(
        "from argparse import ArgumentParser, Namespace\n"
        "def parse_args():\n"
        "    parser = ArgumentParser()\n"
        "    parser.add_argument('--global-batch-size')\n"
        "    parser.parse_known_args()  # which takes no notice of what it does not know\n"
        f"    return Namespace(custom_config_path={str(folder / 'config.yaml')!r})\n"
    )
    monkeypatch.setattr(sys, "argv", sys.argv)
    assert driver.main([script, "--global-bath-size", "8"]) == 1
    unknown = "slime has no flag --global-bath-size and would ignore it; did you mean --global-batch-size?"
    assert unknown in capsys.readouterr().err
    with FileLock(folder / ".slim-rl-run.lock"):
        assert driver.main([script, "--global-batch-size", "8"]) == 1
    assert "in use" in capsys.readouterr().err
