"""scripts/run_matching.sh on a node of fakes: what it makes first, what it starts, and what it leaves."""

import json
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from slim_rl.backends.slime.flags import parse_flags
from slim_rl.backends.slime.job import runtime_environment
from slim_rl.config import load_config
from slim_rl.dialogue.games_file import read_rows
from tests.fakes.cluster import Cluster
from tests.paths import ROOT
from tests.scripts.matching_setup import (
    GIVEN,
    REPOSITORY,
    SCRIPT,
    SMALL,
    flags_of,
    launch,
    one_sentence,
    print_flags,
    printed,
    without_python,
)


def test_launch_makes_what_is_missing_and_cleans_up(cluster: Cluster, model: Path, small: Path) -> None:
    """In a folder of any name; and a second start goes on."""
    run = cluster.folder / "\N{CRAB} \U0001f980 a\u2028b\u0085c [x]: {y} 'z' a\\b"
    games = run / "games.jsonl"
    secrets = {"OPENAI_API_KEY": "sk-secret", "MY_KEY": "mk-secret", "UNRELATED": "no-business"}
    own = ["--set", "partner.openai.api_key_env=MY_KEY", "--set", "partner.kind=mute"]
    own += ["--set", "data.train=" + json.dumps(str(games)).replace(r"\ud83e\udd80", "\U0001f980")]
    done = launch(cluster, *own, MODEL=model, CONFIG=small, SAVE_DIR=run, **secrets)
    assert done.returncode == 0, done.stderr

    config = load_config(run / "config.yaml")
    assert (config.partner.kind, config.name, config.policy.model) == ("mute", run.name, str(model))
    assert config.data.train == games and len(games.read_text().splitlines()) == 6
    assert config.data.eval is not None and len(config.data.eval.read_text().splitlines()) == 2

    flags = flags_of(cluster.trained["words"])
    assert flags["--load"] == flags["--save"] == [str(run)]
    assert flags["--ref-load"] == [str(model)] and flags["--prompt-data"] == [str(games)]
    assert flags["--custom-config-path"] == [str(run / "config.yaml")] and "--override-opt-param-scheduler" not in flags

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

    made = games.stat().st_mtime_ns
    (run / "latest_checkpointed_iteration.txt").write_text("2")
    again = launch(cluster, "--set=train.steps=5", *own, MODEL=model, CONFIG=small, SAVE_DIR=run, **secrets)
    assert again.returncode == 0 and again.stderr.count(f"{run.name} resumes from step 3 of 5") == 1
    flags = flags_of(cluster.trained["words"])
    assert (flags["--load"], flags["--num-rollout"]) == ([str(run)], ["5"])
    assert "--override-opt-param-scheduler" in flags, "for other steps and another rate"
    assert games.stat().st_mtime_ns == made


def test_launch_of_a_custom_game_on_a_cluster_that_runs(cluster: Cluster, model: Path, tmp_path: Path) -> None:
    (cluster.folder / "up").touch()
    games, held_out = tmp_path / "train.jsonl", tmp_path / "eval.jsonl"
    config = REPOSITORY / "examples" / "secret_number.yaml"
    own = ["--set", f"data.train={games}", "--set", f"data.eval={held_out}"]
    done = launch(cluster, *own, MODEL=model, CONFIG=config)
    assert done.returncode == 0, done.stderr
    flags = flags_of(cluster.trained["words"])
    assert flags["--prompt-data"] == [str(games)]
    assert flags["--n-samples-per-prompt"] == ["8"]
    assert load_config(flags["--custom-config-path"][0]).environment == "examples.secret_number.SecretNumber"
    rows = list(read_rows(games))
    assert len(rows) == 400 and set(rows[0].game_state) == {"share"} and len(list(read_rows(held_out))) == 64
    path = json.loads((cluster.folder / "runtime").read_text())["env_vars"]["PYTHONPATH"]
    assert path.split(":")[0] == str(ROOT), "slime has a package named examples too"
    assert not any(call.startswith(("start", "stop")) for call in cluster.calls) and (cluster.folder / "up").exists()


def test_a_job_that_somebody_stopped_is_no_success(alone: Cluster) -> None:
    assert launch(alone, ENDED="was stopped").returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_its_job_and_its_head(alone: Cluster, number: int) -> None:
    environment = alone.environment | {"JOB_SECONDS": "60"}
    command = ["env", "--default-signal", "bash", SCRIPT]  # where the tests run in the background, Ctrl-C is ignored
    process = subprocess.Popen(command, env=environment, cwd=alone.folder, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not (alone.folder / "trained").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + number
    job = next(call for call in alone.calls if "--submission-id" in call).partition("--submission-id ")[2].split()[0]
    assert f"job stop {job}" in alone.calls and alone.calls[-1] == "head stopped"


def test_a_run_resumes_under_its_own_config_alone(cluster: Cluster, model: Path, small: Path) -> None:
    run, beside = cluster.folder / "run", small.with_name("beside.yaml")
    beside.write_text(yaml.safe_dump({"slim_rl": SMALL, "tis_mode": "truncate"}))
    assert printed(print_flags(cluster, dry=False, MODEL=model, CONFIG=beside, SAVE_DIR=run))
    config, games = run / "config.yaml", cluster.folder / "games.jsonl"
    before = config.read_bytes()
    assert set(yaml.safe_load(before)) == {"slim_rl", "tis_mode"}, "slime reads one file, for other plug-ins too"
    for key, value in (("seed", 1), ("data.train", "bad.jsonl")):
        done = print_flags(cluster, f"--set={key}={value}", dry=False, MODEL=model, CONFIG=small, SAVE_DIR=run)
        said = one_sentence(done)
        assert f"began with other values of {key}; give" in said and said.endswith("remove that folder to start over.")
    games.write_text("not a game\n")
    longer = "--set=train.steps=5"
    refused = print_flags(cluster, longer, dry=False, MODEL=model, CONFIG=small, SAVE_DIR=run)
    assert "games.jsonl" in one_sentence(refused)
    assert config.read_bytes() == before, "a start that is refused changes nothing"

    games.unlink()
    moved = run.rename(cluster.folder / "moved")
    printed(print_flags(cluster, longer, dry=False, MODEL=model, CONFIG=beside, SAVE_DIR=moved))
    assert load_config(moved / "config.yaml").train.steps == 5
    assert "tis_mode: truncate" in (moved / "config.yaml").read_text()


def test_a_second_start_beside_a_running_one_is_refused(cluster: Cluster, model: Path, small: Path) -> None:
    run = cluster.folder / "run"
    printed(print_flags(cluster, dry=False, MODEL=model, CONFIG=small, SAVE_DIR=run))
    with FileLock(run / ".slim-rl-run.lock"):
        told = one_sentence(print_flags(cluster, dry=False, MODEL=model, CONFIG=small, SAVE_DIR=run))
        assert f"The run 'run' in {run} is in use by process" in told
    printed(print_flags(cluster, dry=False, MODEL=model, CONFIG=small, SAVE_DIR=run))


def test_a_trained_run_starts_nothing(cluster: Cluster, model: Path, small: Path) -> None:
    run = cluster.folder / "run"
    run.mkdir()
    (run / "latest_checkpointed_iteration.txt").write_text("2")
    done = launch(cluster, MODEL=model, CONFIG=small, SAVE_DIR=run, ASYNC=1)
    assert done.returncode == 0 and "is trained: all 3 steps" in done.stderr
    assert "resumes" not in done.stderr and cluster.calls == []


def test_slim_rl_train_runs_the_script(cluster: Cluster, model: Path, small: Path) -> None:
    changes = ["--set", f"policy.model={model}", "--set", "train.steps=7", "--", "--lr", "2e-6"]
    command = [sys.executable, "-m", "slim_rl", "train", str(small), "--backend", "slime", *changes]
    environment = cluster.environment | {"PYTHONPATH": str(ROOT), "PYTHON": "python3", "NUM_GPUS": "4"}
    done = subprocess.run(command, env=environment, cwd=cluster.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 7 and cluster.calls[-1] == "head stopped", done.stderr
    flags = parse_flags(cluster.trained["words"])
    assert (flags["--lr"], flags["--save"]) == (["2e-6"], [str(cluster.folder / "runs" / "small")])


def test_variables_of_the_job_are_those_it_needs(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = {"https_proxy": "a", "HTTPS_PROXY": "b", "NO_PROXY": "c", "SGLANG_X": "d", "NCCL_NVLS_ENABLE": "0"}
    for name, value in {**passed, "UNRELATED": "no-business"}.items():
        monkeypatch.setenv(name, value)
    variables = runtime_environment(small)["env_vars"]
    assert passed.items() <= variables.items() and "UNRELATED" not in variables


def test_on_another_cluster_the_key_may_be_its_own(cluster: Cluster, model: Path, small: Path) -> None:
    words, run = ["--set=partner.openai.cassette=a.sqlite", "--set=partner.kind=openai"], cluster.folder / "run"
    elsewhere = {"RAY_ADDRESS": "http://head:8265", "OPENAI_API_KEY": ""}
    printed(print_flags(cluster, *words, dry=False, MODEL=model, CONFIG=small, SAVE_DIR=run, **elsewhere))
    done = launch(without_python(cluster), **elsewhere)
    assert done.returncode == 0 and (cluster.folder / "trained").exists(), done.stderr
    assert not [call for call in cluster.calls if call.startswith(("start", "stop"))] + [*cluster.folder.glob("up")]
    openai = load_config(run / "config.yaml").partner.openai
    assert openai.base_url is None and openai.cassette == cluster.folder / "a.sqlite", "its workers start elsewhere"


# -- the flags that depend on the config (`slim-rl train CONFIG --backend slime --print-flags`), and what is refused

OF_CONFIG = """
partner.kind=self train.steps=9 => --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size 512 --lr-decay-iters 9
train.lr_schedule=wsd train.lr_decay_steps=10 train.warmup_steps=10 train.steps=10 => --lr-warmup-iters 5 --lr-wsd-decay-iters 5
train.steps=9 train.warmup_steps=2 --global-batch-size 64 => --lr-decay-iters 36 --lr-warmup-iters 8
"""


@pytest.mark.parametrize("line", OF_CONFIG.strip().splitlines())
def test_flags_follow_from_the_config(cluster: Cluster, model: Path, line: str) -> None:
    """Selfplay's step is one update of both seats; a short run's warm-up is shortened; smaller batches are more updates."""
    words, _, flags = line.partition(" => ")
    changes, own = re.findall(r"\S+=\S+", words), re.findall(r"(?<!\S)[^ =]+(?!\S)", words)
    done = print_flags(cluster, *(f"--set={each}" for each in changes), given=[*GIVEN, *own], MODEL=model)
    assert parse_flags(flags.split()).items() <= printed(done).items()
    assert ("train.steps 10 is too few for a warm-up of 10 and a decay of 10" in done.stderr) == ("wsd" in line)


def test_a_converted_checkpoint_is_the_start(cluster: Cluster, model: Path) -> None:
    done = print_flags(cluster, MODEL=model, TORCH_DIST="mine", WANDB_API_KEY="w-secret")
    flags = printed(done)
    assert "--use-wandb" in flags and "w-secret" not in done.stdout + done.stderr, "slime logs every argument"
    assert (flags["--ref-load"], flags["--hf-checkpoint"]) == ([str(cluster.folder / "mine")], [str(model)])


# ------------------------------------------------------------------------------------------------------------ refusals


REFUSALS = (ROOT / "tests" / "scripts" / "refusals.txt").read_text(encoding="utf-8").replace("ROOT", str(ROOT))


@pytest.mark.parametrize("line", REFUSALS.splitlines())
def test_what_cannot_start_is_one_sentence_before_it_costs(cluster: Cluster, model: Path, line: str) -> None:
    """Each line: variables, changes of the config and flags => what the sentence says."""
    words, _, says = line.replace("FOLDER", str(cluster.folder)).partition(" => ")
    (cluster.folder / "calls-is-a-file").touch()
    given = shlex.split(words)
    variables = dict(word.split("=", 1) for word in given if re.match("[A-Z_]+=", word))
    changes = [word for word in given if word.startswith("--set=")]
    own = [word for word in given if word not in changes and not re.match("[A-Z_]+=", word)]
    done = print_flags(cluster, *changes, given=[*GIVEN, *own], dry=False, **{"MODEL": model} | variables)
    assert says in one_sentence(done)
    assert cluster.calls == [] and not (cluster.folder / "run").exists()
