"""scripts/run_matching.sh on a node of fakes: what it makes first, what it starts, and what it leaves."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from filelock import FileLock

from slim_rl.config import load_config
from slim_rl.dialogue.rows import read_rows
from slim_rl.files import host_name
from tests.fakes.cluster import Cluster
from tests.scripts.matching_setup import (
    REPOSITORY,
    SCRIPT,
    cluster,
    flags_of,
    launch,
    launch_here,
    model,
    small,
)

__all__ = ["cluster", "model", "small"]  # fixtures


def test_launch_makes_what_is_missing_and_cleans_up(cluster: Cluster, model: Path, small: Path) -> None:
    run = cluster.folder / "run"
    secrets = {"OPENAI_API_KEY": "sk-secret", "MY_KEY": "mk-secret", "UNRELATED": "no-business"}
    own_key = ["--set", "partner.openai.api_key_env=MY_KEY"]
    done = launch(cluster, *own_key, MODEL=model, CONFIG=small, SAVE_DIR=run, PARTNER="mute", **secrets)
    assert done.returncode == 0, done.stderr

    config = load_config(run / "config.yaml")
    assert (config.partner.kind, config.name, config.policy.model) == ("mute", "run", str(model))
    assert config.log.dir == run / "dialogues"
    assert len(config.data.train.read_text().splitlines()) == 6
    assert config.data.eval is not None and len(config.data.eval.read_text().splitlines()) == 2
    converted = model.with_name("Qwen3-0.6B_torch_dist")
    assert (converted / "latest_checkpointed_iteration.txt").read_text() == "release\n"

    flags = flags_of(cluster.trained["words"])
    assert flags["--load"] == flags["--save"] == [str(run)]
    assert flags["--ref-load"] == [str(converted)]
    assert flags["--custom-config-path"] == [str(run / "config.yaml")]

    runtime = cluster.folder / "runtime"
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o600
    variables = json.loads(runtime.read_text())["env_vars"]
    assert (variables["OPENAI_API_KEY"], variables["MY_KEY"]) == ("sk-secret", "mk-secret")
    assert "UNRELATED" not in variables
    assert str(REPOSITORY) in variables["PYTHONPATH"].split(":")
    assert not any("-secret" in call for call in cluster.calls), "a command line can be read by every user"
    assert "-secret" not in (run / "config.yaml").read_text()

    assert any(call.startswith("start --head") for call in cluster.calls)
    assert cluster.calls[-1] == "head stopped"
    assert not any(call.startswith(("job stop", "stop")) for call in cluster.calls), "it ended by itself"


def test_launch_of_a_game_of_ones_own(cluster: Cluster, model: Path, tmp_path: Path) -> None:
    games, held_out = tmp_path / "train.jsonl", tmp_path / "eval.jsonl"
    done = launch(
        cluster, MODEL=model, CONFIG=REPOSITORY / "examples" / "secret_number.yaml", DATA=games, EVAL_DATA=held_out
    )
    assert done.returncode == 0, done.stderr
    flags = flags_of(cluster.trained["words"])
    assert flags["--prompt-data"] == [str(games)]
    assert flags["--n-samples-per-prompt"] == ["8"]
    assert load_config(flags["--custom-config-path"][0]).environment == "examples.secret_number.SecretNumber"
    rows = list(read_rows(games))
    assert len(rows) == 400
    assert set(rows[0].game_state) == {"share"}
    assert len(list(read_rows(held_out))) == 64


def test_second_start_goes_on(cluster: Cluster, model: Path, small: Path) -> None:
    run = cluster.folder / "run"
    assert launch(cluster, MODEL=model, CONFIG=small, SAVE_DIR=run).returncode == 0
    games = (cluster.folder / "games.jsonl").stat().st_mtime_ns
    (run / "latest_checkpointed_iteration.txt").write_text("2")
    assert launch(cluster, MODEL=model, CONFIG=small, SAVE_DIR=run, NUM_ROLLOUT=5).returncode == 0
    flags = flags_of(cluster.trained["words"])
    assert (flags["--load"], flags["--num-rollout"]) == ([str(run)], ["5"])
    assert sum(call.startswith("convert") for call in cluster.calls) == 1
    assert (cluster.folder / "games.jsonl").stat().st_mtime_ns == games


def test_failed_conversion_leaves_nothing(cluster: Cluster, model: Path, small: Path) -> None:
    (cluster.folder / "full").touch()
    done = launch(cluster, MODEL=model, CONFIG=small)
    assert done.returncode == 1
    assert "the conversion failed" in done.stderr
    assert [path.name for path in model.parent.iterdir()] == [model.name]
    assert not (cluster.folder / "trained").exists()


def test_what_a_killed_conversion_left_is_removed_by_the_next(cluster: Cluster, model: Path, small: Path) -> None:
    nobody = 2**22 + 1  # more than Linux gives out as a process's number
    left = model.with_name(f".{model.name}_torch_dist.{host_name()}.{nobody}.tmp")
    left.mkdir()
    assert launch_here(cluster, MODEL=model, CONFIG=small).returncode == 0
    assert sorted(path.name for path in model.parent.iterdir()) == [model.name, f"{model.name}_torch_dist"]


def test_misspelt_flag_ends_the_run_before_it_costs_anything(cluster: Cluster, model: Path, small: Path) -> None:
    done = launch(cluster, "--learning-rat", "1", MODEL=model, CONFIG=small)
    assert done.returncode == 1
    assert "slime has no flag --learning-rat and would ignore it" in done.stderr
    assert not any(call.startswith(("start", "job")) for call in cluster.calls)


def test_failed_job_hands_on_its_exit_code(cluster: Cluster, model: Path, small: Path) -> None:
    assert launch(cluster, MODEL=model, CONFIG=small, NUM_ROLLOUT=7).returncode == 7
    assert cluster.calls[-1] == "head stopped"


@pytest.mark.parametrize("running", ["here", "elsewhere"])
def test_a_cluster_that_runs_is_joined_and_left_running(
    cluster: Cluster, model: Path, small: Path, running: str
) -> None:
    address = {"RAY_ADDRESS": "http://head:8265"} if running == "elsewhere" else {}
    if running == "here":
        (cluster.folder / "up").touch()
    done = launch(cluster, MODEL=model, CONFIG=small, **address)
    assert done.returncode == 0, done.stderr
    assert not any(call.startswith(("start", "stop")) for call in cluster.calls)
    assert (cluster.folder / "up").exists() == (running == "here")


@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_its_job_and_its_head(
    cluster: Cluster, model: Path, small: Path, interruption: signal.Signals
) -> None:
    environment = cluster.environment | {"MODEL": str(model), "CONFIG": str(small), "NUM_ROLLOUT": "60"}
    process = subprocess.Popen(["bash", str(SCRIPT)], env=environment, cwd=cluster.folder, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not (cluster.folder / "trained").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(interruption)
    assert process.wait(timeout=60) == 128 + interruption
    submitted = next(call for call in cluster.calls if "--submission-id" in call).split()
    job = submitted[submitted.index("--submission-id") + 1]
    assert f"job stop {job}" in cluster.calls
    assert cluster.calls[-1] == "head stopped"


def test_a_run_goes_on_under_its_own_config_alone(cluster: Cluster, model: Path, small: Path) -> None:
    run = cluster.folder / "run"
    config, plugin = run / "config.yaml", small.with_name("plugin.yaml")
    plugin.write_text("tis_mode: truncate\n")
    assert launch(cluster, "--custom-config-path", plugin, MODEL=model, CONFIG=small, SAVE_DIR=run).returncode == 0
    (cluster.folder / "trained").unlink()
    before, games = config.read_bytes(), cluster.folder / "games.jsonl"
    for words, says in (
        (["--set", "seed=1"], "began with other values of seed; give"),
        (["--set", "data.train=bad.jsonl"], "began with other values of data.train; give"),
    ):
        done = launch_here(cluster, *words, MODEL=model, CONFIG=small, SAVE_DIR=run)
        assert done.returncode == 1 and says in done.stderr
        assert done.stderr.strip().endswith("or remove that folder to start over.")
    games.write_text("not a game\n")
    done = launch_here(cluster, MODEL=model, CONFIG=small, SAVE_DIR=run, NUM_ROLLOUT=5)
    assert done.returncode == 1 and "games.jsonl" in done.stderr
    assert config.read_bytes() == before, "a start that is refused changes nothing"
    assert not (cluster.folder / "trained").exists()

    games.unlink()
    moved = run.rename(cluster.folder / "moved")
    again = launch_here(
        cluster, "--custom-config-path", plugin, MODEL=model, CONFIG=small, SAVE_DIR=moved, NUM_ROLLOUT=5
    )
    assert again.returncode == 0, again.stderr
    assert load_config(moved / "config.yaml").train.steps == 5
    assert "tis_mode: truncate" in (moved / "config.yaml").read_text()


def test_run_keeps_the_log_of_the_config_it_was_given(cluster: Cluster, model: Path, small: Path) -> None:
    first, second = cluster.folder / "first", cluster.folder / "second"
    assert launch_here(cluster, MODEL=model, CONFIG=small, SAVE_DIR=first).returncode == 0
    assert launch_here(cluster, MODEL=model, CONFIG=first / "config.yaml", SAVE_DIR=first).returncode == 0
    done = launch_here(cluster, MODEL=model, CONFIG=first / "config.yaml", SAVE_DIR=second)
    assert done.returncode == 1
    assert f"log.dir is {first}/dialogues, but on slime a run keeps its log in its own folder, {second};" in done.stderr
    inside = launch_here(cluster, "--set", "log.dir=said", MODEL=model, CONFIG=first / "config.yaml", SAVE_DIR=second)
    assert inside.returncode == 0 and load_config(second / "config.yaml").log.dir == second / "said"


def test_a_second_start_beside_a_running_one_is_refused(cluster: Cluster, model: Path, small: Path) -> None:
    run = cluster.folder / "run"
    assert launch_here(cluster, MODEL=model, CONFIG=small, SAVE_DIR=run).returncode == 0
    (cluster.folder / "trained").unlink()
    with FileLock(run / ".slim-rl-run.lock"):
        done = launch_here(cluster, MODEL=model, CONFIG=small, SAVE_DIR=run)
        assert done.returncode == 1 and f"The run 'run' in {run} is in use by process" in done.stderr
    assert not (cluster.folder / "trained").exists()


def test_a_trained_run_starts_nothing(cluster: Cluster, model: Path, small: Path) -> None:
    run = cluster.folder / "run"
    run.mkdir()
    (run / "latest_checkpointed_iteration.txt").write_text("2")
    done = launch_here(cluster, MODEL=model, CONFIG=small, SAVE_DIR=run, ASYNC="full")
    assert done.returncode == 0 and "has a checkpoint of the last of its 3 steps" in done.stderr
    assert "goes on" not in done.stderr
    assert not any(call.startswith(("start", "job")) for call in cluster.calls)
