"""Trackers by name: each backend is handed those it has, and each calls the measures by the same names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slim_rl.backends import Request, check, start
from slim_rl.backends.trackers import check_trackers, has_wandb_login
from slim_rl.config import parse_config
from slim_rl.config.trainers import values
from slim_rl.errors import ConfigError

EVERY = ["tensorboard", "wandb", "mlflow", "trackio"]
LOGS = {"reward": 0.5, "questions": 1.5, "stop/agreed": 0.25, "loss": 0.125}
TOLD = {"dialogue/reward": 0.5, "dialogue/questions": 1.5, "dialogue/stop/agreed": 0.25, "train/loss": 0.125}


def config_of(backend: str, trackers: list[str]) -> Any:
    return parse_config({"train": {"backend": backend, "report_to": trackers}})


def test_names_are_passed_through_to_those_that_have_them() -> None:
    assert values(config_of("trl", EVERY), "trl")["report_to"] == EVERY
    assert values(config_of("verl", EVERY), "verl")["trainer.logger"] == ["console", *EVERY]
    check(config_of("slime", ["tensorboard", "wandb"]))


def test_a_name_that_a_backend_lacks_is_one_sentence() -> None:
    with pytest.raises(
        ConfigError, match=r"^train\.report_to names mlflow and trackio, which slime does not have; choose"
    ):
        check(config_of("slime", EVERY))
    with pytest.raises(ConfigError, match=r"train\.report_to"):
        config_of("trl", ["neptune"])


@pytest.mark.parametrize("backend", ["trl", "slime", "verl"])
def test_wandb_without_a_login_is_one_sentence(backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    request = Request(tmp_path / "config.yaml", (), config_of(backend, ["wandb"]), dry_run=True)
    with pytest.raises(ConfigError, match=r"^train\.report_to=wandb: Weights & Biases has no login here"):
        start(request)
    (tmp_path / "netrc").write_text("machine wandb.mine login user password key\n")
    assert not has_wandb_login()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.mine/")
    assert has_wandb_login()


def test_tracker_that_is_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slim_rl.backends.trackers.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^train\.report_to=mlflow and trackio: not installed here\. Run pip"):
        check_trackers(config_of("trl", ["mlflow", "trackio"]))


def test_verl_has_them_all() -> None:
    tracking = pytest.importorskip("verl.utils.tracking")
    assert set(EVERY) <= set(tracking.Tracking.supported_backend)


@pytest.fixture
def transformers() -> Any:
    return pytest.importorskip("transformers")


def log(callback: Any, folder: Path, transformers: Any) -> None:
    """A step of LOGS, told to transformers' own callback as TRL's trainer tells it."""
    from slim_rl.backends.trl.trackers import name_measures

    name_measures([callback], lambda: {"questions", "stop/agreed", "reward"})
    state = transformers.TrainerState(global_step=3)
    state.is_world_process_zero = True
    arguments = transformers.TrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[], run_name="told")
    callback.on_log(arguments, state, transformers.TrainerControl(), model=None, logs=dict(LOGS))


def test_tensorboards_event_file_has_them(tmp_path: Path, transformers: Any) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from transformers.integrations import TensorBoardCallback

    callback = TensorBoardCallback(writer.SummaryWriter(str(tmp_path)))
    log(callback, tmp_path, transformers)
    callback.tb_writer.close()
    read = accumulator.EventAccumulator(str(tmp_path))
    read.Reload()
    assert {name: read.Scalars(name)[-1].value for name in read.Tags()["scalars"]} == TOLD
    assert {read.Scalars(name)[-1].step for name in TOLD} == {2}, "as in the log: the first of three steps is 0"


def test_wandbs_summary_has_them_offline(tmp_path: Path, transformers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    from transformers.integrations import WandbCallback

    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true", "DISABLE_GIT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    log(WandbCallback(), tmp_path, transformers)
    told = dict(wandb.run.summary)
    wandb.finish()
    assert {name: told[name] for name in TOLD} == TOLD and "train/questions" not in told


def test_mlflows_store_has_them(tmp_path: Path, transformers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    from transformers.integrations import MLflowCallback

    monkeypatch.setenv("MLFLOW_TRACKING_URI", tmp_path.as_uri())
    log(MLflowCallback(), tmp_path, transformers)
    mlflow.end_run()
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert {name: run.data.metrics[name] for name in TOLD if name.startswith("dialogue/")} == {
        name: value for name, value in TOLD.items() if name.startswith("dialogue/")
    }


def test_other_callbacks_are_told_as_before(transformers: Any) -> None:
    from slim_rl.backends.trl.trackers import name_measures

    seen: list[Any] = []
    own = SimpleNamespace(on_log=lambda *args, logs, **others: seen.append(logs))
    name_measures([own], lambda: {"questions"})
    own.on_log(logs=LOGS)
    assert seen == [LOGS]


def test_verl_numbers_a_step_as_the_log_does(monkeypatch: pytest.MonkeyPatch) -> None:
    training_reward = pytest.importorskip("slim_rl.backends.verl.training_reward")
    told: list[Any] = []
    logged = training_reward.by_played_step(lambda self, data, step: told.append((step, data)))
    logged(None, {"dialogue/reward": 0.5, "val-core/x": 0.7}, 3)
    logged(None, {"val-core/x": 0.1}, 0)
    assert told == [(2, {"dialogue/reward": 0.5}), (3, {"val-core/x": 0.7}), (0, {"val-core/x": 0.1})]
    assert training_reward.Tracking.log.__wrapped__ is not None, "verl's own trackers are told so"
