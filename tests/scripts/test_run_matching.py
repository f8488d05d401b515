"""scripts/run_matching.sh on a node of fakes: the command it builds, what it makes first, what it starts, and what it leaves."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import stat
import subprocess
import time
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from slim_rl.backends.slime.driver import complaints
from slim_rl.backends.slime.launch import main
from slim_rl.backends.slime.layout import parse_flags
from slim_rl.config import load_config
from slim_rl.dialogue.rows import read_rows
from tests.fakes.cluster import MODELS, Cluster, known_flags, write_model
from tests.paths import ROOT

REPOSITORY = ROOT
SCRIPT = REPOSITORY / "scripts" / "run_matching.sh"
SMALL = {
    "name": "small",
    "game": {"n": 3},
    "data": {"train": "games.jsonl", "eval": "eval.jsonl", "num_train": 6, "num_eval": 2},
    "train": {"steps": 3, "games_per_step": 2, "group_size": 2, "learning_rate": 1e-6},
    "log": {"dir": "dialogues"},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.build(tmp_path / "node")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "models", "Qwen3-0.6B")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({"slim_rl": SMALL}))
    return path


def launch(cluster: Cluster, *words: object, **variables: object) -> subprocess.CompletedProcess[str]:
    environment = cluster.environment | {key: str(value) for key, value in variables.items()}
    command = ["bash", str(SCRIPT), *map(str, words)]
    return subprocess.run(
        command, env=environment, cwd=cluster.folder, capture_output=True, text=True, timeout=240, check=False
    )


def dry_run(cluster: Cluster, *words: object, **variables: object) -> subprocess.CompletedProcess[str]:
    """What `launch` gives with --dry-run, without its seconds of starting: the script's launcher, in this process."""
    set_by_the_script = {"PYTHON": "python3", "CONFIG": str(ROOT / "configs" / "matching.yaml")}
    environment = cluster.environment | set_by_the_script | {key: str(value) for key, value in variables.items()}
    command, out, err = [*map(str, words), "--dry-run"], io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, environment, clear=True),
        contextlib.chdir(cluster.folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(command)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def command_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The words of a dry run's command."""
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout.replace("\\\n", " "))


def flags_of(words: list[str]) -> dict[str, list[str]]:
    """flag -> values, with no flag standing twice."""
    repeated = [flag for flag, times in Counter(word for word in words if word.startswith("--")).items() if times > 1]
    assert not repeated
    return parse_flags([word for word in words if not word.endswith((".py", "python3", "-m", "slime.driver"))])


# ------------------------------------------------------------------------------------------------------- the command
@pytest.mark.parametrize("name", MODELS)
def test_every_flag_is_slimes_and_stands_once(cluster: Cluster, tmp_path: Path, name: str) -> None:
    done = dry_run(cluster, MODEL=write_model(tmp_path, name), NUM_GPUS=8)
    flags = flags_of(command_of(done))
    assert set(flags) <= known_flags()
    assert flags["--num-layers"] == [str(MODELS[name]["num_hidden_layers"])]
    assert flags["--custom-generate-function-path"] == ["slim_rl.rollout.generate"]
    assert flags["--eval-prompt-data"][0] == "matching"
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(flags), "one flag a line"


@pytest.mark.parametrize("mode", ["1", "full"])
def test_every_flag_of_an_asynchronous_run_is_slimes(cluster: Cluster, model: Path, mode: str) -> None:
    words = command_of(dry_run(cluster, "--set", "train.kl_coef=0.01", MODEL=model, ASYNC=mode, NUM_NODES=2))
    flags = flags_of(words)
    assert words[3].endswith("train_async.py")
    assert set(flags) <= known_flags()
    assert "--colocate" not in flags
    assert (flags["--actor-num-gpus-per-node"], flags["--rollout-num-gpus"]) == (["4"], ["4"])
    assert "--eval-interval" in flags
    own = flags.get("--rollout-function-path") == ["slim_rl.rollout.generate_fully_async"]
    assert own == (mode == "full")


def test_a_fully_asynchronous_run_has_room_for_all_its_dialogues(cluster: Cluster, model: Path) -> None:
    def samples(*more: str) -> list[str]:
        words = command_of(dry_run(cluster, *more, MODEL=model, ASYNC="full", NUM_GPUS=8))
        return flags_of(words)["--sglang-server-concurrency"]

    large = ("--set", "train.games_per_step=128", "--set", "train.group_size=16")
    assert samples() == ["512"]
    assert samples(*large) == ["1024"]  # two steps of 128 games in groups of 16, over 4 engines
    assert samples(*large, "--set", "slime.max_staleness=5") == ["2048"]


def test_parallelism_fits_the_gpus_that_training_has(cluster: Cluster, tmp_path: Path) -> None:
    model = write_model(tmp_path, "Qwen3-32B")

    def parallel(**variables: object) -> tuple[str, str]:
        divides = ["--set", "train.games_per_step=30"]  # over three copies of the model too
        flags = flags_of(command_of(dry_run(cluster, *divides, MODEL=model, **variables)))
        return flags["--tensor-model-parallel-size"][0], flags["--rollout-num-gpus-per-engine"][0]

    assert parallel(NUM_GPUS=8) == ("8", "4")
    assert parallel(NUM_GPUS=8, ASYNC=1) == ("4", "4")
    assert parallel(NUM_GPUS=8, ASYNC=1, ROLLOUT_GPUS=2) == ("2", "2")
    assert parallel(NUM_GPUS=8, NUM_NODES=2, ASYNC=1) == ("8", "4")


def test_config_and_settings_reach_the_flags(cluster: Cluster, model: Path, small: Path) -> None:
    overrides = ["--set", "train.scale_rewards=false", "--set", "train.report_to=[tensorboard]", "--num-rollout=9"]
    done = dry_run(cluster, *overrides, MODEL=model, CONFIG=small, EVAL_INTERVAL=5, WANDB_API_KEY="secret")
    flags = flags_of(command_of(done))
    assert flags["--num-rollout"] == ["9"]
    assert flags["--rollout-batch-size"] == ["2"]
    assert flags["--global-batch-size"] == ["4"]
    assert flags["--eval-interval"] == ["5"]
    assert {"--disable-grpo-std-normalization", "--use-tensorboard", "--use-wandb"} <= set(flags)
    assert "secret" not in done.stdout + done.stderr, "slime logs every argument it is given"


def test_a_flag_of_the_users_takes_the_place_of_ours(cluster: Cluster, model: Path) -> None:
    passed = [
        "--lr",
        "3e-6",
        "--eval-prompt-data",
        "other",
        "other.jsonl",
        "--train-env-vars",
        '{"A": "b c"}',
        "--weight-decay=0",
    ]
    flags = flags_of(command_of(dry_run(cluster, *passed, MODEL=model)))
    assert flags["--lr"] == ["3e-6"]
    assert flags["--eval-prompt-data"] == ["other", "other.jsonl"]
    assert json.loads(flags["--train-env-vars"][0]) == {"A": "b c"}
    assert "--weight-decay=0" in command_of(dry_run(cluster, *passed, MODEL=model))
    assert flags["--weight-decay"] == ["0"]


def test_checkpoint_corrects_what_its_shape_leaves_free(cluster: Cluster, tmp_path: Path) -> None:
    rope = {"rope_theta": None, "rope_parameters": {"rope_theta": 5000000, "rope_type": "default"}}
    done = dry_run(cluster, MODEL=write_model(tmp_path, "Qwen3-4B", **rope, vocab_size=151940))
    flags = flags_of(command_of(done))
    assert (flags["--rotary-base"], flags["--vocab-size"]) == (["5000000"], ["151940"])
    assert "--rotary-base 5000000 from config.json" in done.stderr


def test_model_by_its_name_on_the_hub(cluster: Cluster, tmp_path: Path) -> None:
    """From the hub's cache: named after the model and not after its commit, and converted outside of the cache."""
    repository = tmp_path / "hub" / "models--Qwen--Qwen3-4B"
    snapshot = write_model(repository / "snapshots", "Qwen3-4B").rename(repository / "snapshots" / "0a1b2c")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0a1b2c")
    flags = flags_of(command_of(launch(cluster, "--dry-run", MODEL="Qwen3-4B", HF_HUB_CACHE=tmp_path / "hub")))
    assert flags["--hf-checkpoint"] == [str(snapshot)]
    assert flags["--ref-load"] == [str(cluster.folder / "runs" / "Qwen3-4B_torch_dist")]
    assert flags["--save"] == [str(cluster.folder / "runs" / "matching-Qwen3-4B-openai")]


def test_dry_run_writes_nothing(cluster: Cluster, model: Path, small: Path) -> None:
    before = sorted(cluster.folder.parent.rglob("*"))
    command_of(launch(cluster, "--dry-run", MODEL=model, CONFIG=small))
    assert sorted(cluster.folder.parent.rglob("*")) == before
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "MODEL is not set"),
        (["--model", "nowhere/none"], "give a path"),
        (["--model", "MODEL", "--set", "partner.kind=rude"], "partner.kind"),
        (["--model", "MODEL", "--set", "train.credit=turn", "--use-opd"], "leave one out"),
        (["--model", "MODEL", "--set", "train.loss=constant"], "slime does not have"),
        (["--model", "MODEL", "--tp", "3"], "it must divide its 8 query groups"),
        (["--model", "MODEL", "--num-gpus", "6", "--tp", "4"], "does not divide the 6 GPUs of a node that train"),
        (["--model", "MODEL", "--no-colocate", "--num-gpus", "1"], "Choose another ROLLOUT_GPUS"),
        (["--model", "MODEL", "--async", "1", "--colocate"], "cannot share GPUs"),
        (["--model", "MODEL", "--async", "2"], "'0', '1' or 'full'"),
        (["--model", "MODEL", "--save", "x"], "SAVE_DIR"),
        (["--model", "MODEL", "lr=1"], "'lr=1' is not understood"),
        (["--model", "MODEL", "--slime-dir", "nowhere"], "set SLIME_DIR to its checkout"),
        (["--model"], "--model needs a value"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(cluster: Cluster, model: Path, words: list[str], said: str) -> None:
    done = dry_run(cluster, *(str(model) if word == "MODEL" else word for word in words))
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert cluster.calls == []


def test_model_that_slime_does_not_know(cluster: Cluster, tmp_path: Path) -> None:
    done = dry_run(cluster, MODEL=write_model(tmp_path, "Qwen3-4B", num_hidden_layers=37))
    assert done.returncode == 1
    assert "slime has no model script" in done.stderr
    assert "qwen3-4b" in done.stderr


def test_without_a_gpu_it_points_to_make_run(tmp_path: Path, model: Path, small: Path) -> None:
    cluster = Cluster.build(tmp_path / "laptop", gpus=False)
    # the machine that tests run on may have GPUs
    done = launch(cluster, MODEL=model, CONFIG=small, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "make run" in done.stderr
    assert cluster.calls == []


# --------------------------------------------------------------------------------------------------------- the launch
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


# --------------------------------------------------------------------------------------------------------- the pieces
def test_complaints_name_the_nearest_flag_and_repetitions() -> None:
    found = complaints(["--lr", "1", "--lr=2", "--num-rolout", "3"], {"--lr", "--num-rollout"})
    assert len(found) == 2
    assert "--lr is given 2 times" in found[0]
    assert "did you mean --num-rollout" in found[1]
    assert (
        complaints(
            ["--rollout-sample-hook-path", "a", "--rollout-sample-hook-path", "b"], {"--rollout-sample-hook-path"}
        )
        == []
    )


def test_offline_config_is_the_same_with_the_scripted_partner() -> None:
    online, offline = (
        load_config(REPOSITORY / "configs" / f"{name}.yaml") for name in ("matching", "matching_offline")
    )
    assert offline.partner.kind == "shy"
    assert offline.model_copy(update={"partner": online.partner}) == online
