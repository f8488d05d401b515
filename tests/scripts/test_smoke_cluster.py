"""scripts/smoke_cluster.sh on a node of fakes: a stand-in trains, the rest is real, and the table says what was measured."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from slim_rl.backends.slime.smoke import NOTHING, Smoke, main, read_metrics
from tests.fakes.cluster import Cluster, write_model
from tests.paths import ROOT

# Prints what slime prints, saves as Megatron saves, and continues where the last checkpoint is.
_TRAIN = """import argparse, os, sys, time
words = sys.argv[1:]
value = lambda flag: words[words.index(flag) + 1]
folder, steps = value("--save"), int(value("--num-rollout"))
tracker = os.path.join(folder, "latest_checkpointed_iteration.txt")
start = int(open(tracker).read()) + 1 if os.path.exists(tracker) else 0
create_training_models = create_rollout_manager = None
def parse_args():
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    for word in words:
        if word.startswith("--"):
            parser.add_argument(word, nargs="?")
    return parser.parse_known_args()[0]
def train(args):
    for step in range(start, steps):
        print(f"(Actor pid=7) [2026-11-21 10:00:00] metrics.py:1 - perf {step}: "
              f"{{'perf/rollout_time': {4.0 - step}, 'perf/tokens_per_gpu_per_sec': 1e3, 'rollout/prefix_cache_hit_rate': 0.75}}")
        print(f"perf {step}: {{'perf/step_time': {10.0 - step}, 'perf/actor_train_time': np.float64(3.5)}}")
        print(f"step {step}: {{'train/train_rollout_logprob_abs_diff': 0.0125, 'train/grad_norm': nan}}", flush=True)
        path = os.path.join(folder, f"iter_{step:07d}")
        os.makedirs(path, exist_ok=True)
        open(os.path.join(path, "common.pt"), "w").close()
        with open(tracker, "w") as file:
            file.write(str(step))
        time.sleep(0 if start else 30)
"""
_TOOL = f"""import os, shutil, sys
output = sys.argv[sys.argv.index("--output-dir") + 1]
for name in os.listdir({str(ROOT / "data" / "warmstart")!r}):
    shutil.copy(os.path.join({str(ROOT / "data" / "warmstart")!r}, name), output)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster.build(tmp_path / "node")
    (cluster.slime / "train.py").write_text(_TRAIN)
    (cluster.slime / "tools").mkdir()
    (cluster.slime / "tools" / "convert_torch_dist_to_hf.py").write_text(_TOOL)
    return cluster


def smoke(cluster: Cluster, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    config = yaml.safe_load((ROOT / "configs" / "matching_local.yaml").read_text())["slim_rl"]
    config["train"] |= {"backend": "slime"}
    config["log"] = {"dir": "dialogues"}
    path = cluster.folder / "small.yaml"
    path.write_text(yaml.safe_dump({"slim_rl": config}))
    own = {"CONFIG": str(path), "MODEL": str(write_model(cluster.folder, "Qwen3-0.6B")), "SMOKE_DIR": str(folder)}
    own |= {"ENGINE": "transformers", "GAMES": "4"}
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "smoke_cluster.sh")],
        env=cluster.environment | own | variables,
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.timeout(900)
def test_smoke_stops_resumes_exports_and_evaluates(cluster: Cluster, tmp_path: Path) -> None:
    done = smoke(cluster, tmp_path / "smoke")
    assert done.returncode == 0, done.stderr
    table = done.stdout
    assert table == (tmp_path / "smoke" / "smoke.md").read_text()
    assert "| train | done in" in table and "(stopped at its first checkpoint)" in table
    assert "(went on after step 0)" in table and "| export | done" in table and "| evaluate | done" in table
    assert "| step, after the first | 8.5 s (`perf/step_time`, 2 steps) |" in table  # 9 and 8
    assert "| prefix cache hits | 0.750 of the prompt tokens (`rollout/prefix_cache_hit_rate`, 3 steps) |" in table
    assert "| train against rollout logprobs | 0.0125 " in table
    assert "| tokens trained on | not measured" in table and "| training dialogues | not measured |" in table
    assert "| held-out dialogues | 4: reward" in table and "4 × NVIDIA H100" in table
    assert any(call.startswith("job stop") for call in cluster.calls)


@pytest.mark.timeout(600)
def test_a_run_that_begins_anew_is_noticed_and_ends_the_test(cluster: Cluster, tmp_path: Path) -> None:
    forgets = _TRAIN.replace("for step in range(start", "again = start\n    for step in range(0").replace(
        "0 if start", "0 if again"
    )
    (cluster.slime / "train.py").write_text(forgets)
    done = smoke(cluster, tmp_path / "smoke")
    assert done.returncode == 1
    assert "| resume | FAILED" in done.stdout and "it began at 0" in done.stdout and "| export" not in done.stdout


def test_a_stage_that_fails_shows_the_end_of_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = Smoke(tmp_path)
    assert not test.stage("export", ["sh", "-c", "echo no room; exit 3"]).done
    assert "no room" in capsys.readouterr().err
    assert "| export | FAILED in" in test.table() and "exit code 3" in test.table() and NOTHING in test.table()


def test_metrics_are_read_from_what_slime_prints(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "perf 0: {'perf/step_time': 9, 'a/b_c': 1e-05}\nloss 1: {'x': 2}\nstep 1: {'a/b_c': -2.5, 'bad': nan}\n"
    )
    assert read_metrics([log, tmp_path / "none"]) == {"perf/step_time": [9.0], "a/b_c": [1e-05, -2.5]}
    assert os.access(ROOT / "scripts" / "smoke_cluster.sh", os.X_OK)


def test_a_number_of_games_that_is_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GAMES", "abc")
    assert main([str(tmp_path / "smoke")]) == 1
    assert "GAMES is 'abc'; it must be a whole number of at least 1." in capsys.readouterr().err


def test_help_is_the_scripts_header() -> None:
    script = ROOT / "scripts" / "smoke_cluster.sh"
    done = subprocess.run(["bash", script, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "SMOKE_DIR" in done.stdout and "set -euo" not in done.stdout
