"""The whole of it: `slim-rl train … --on-cpu` with real Ray, real SGLang and its router, slime's train.py and Megatron; interrupted, resumed,
stopped by its partner, exported.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402

from slim_rl.backends.checkpoints import LAST_WHOLE, last_whole  # noqa: E402
from slim_rl.backends.slime.cpu import sources  # noqa: E402
from slim_rl.backends.slime.smoke import read_metrics  # noqa: E402
from slim_rl.processes import last_lines  # noqa: E402
from tests.paths import ROOT  # noqa: E402
from tests.slime_cpu.conftest import PYTHON, need_slime  # noqa: E402

STEPS, RATE, DIALOGUES, SECONDS = 6, 1e-3, 32, 280
pytestmark = [pytest.mark.slime, pytest.mark.timeout(2 * SECONDS)]


@dataclass
class Run:
    """A run in a folder, by the command that a user would type. `mark` is in the environment of every process it starts."""

    folder: Path
    mark: str = field(default_factory=lambda: f"slime-run-{uuid.uuid4().hex}")

    def command(self, *words: str) -> list[str]:
        return [str(PYTHON), "-m", "slim_rl", *words]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(ROOT), "SLIM_RL_TEST": self.mark}

    def train(self, log: Path, *overrides: str) -> subprocess.Popen[bytes]:
        changes = [
            "policy.top_p=1",
            "name=run",
            f"train.steps={STEPS}",
            "train.games_per_step=4",
            f"train.learning_rate={RATE}",
        ]
        changes += [
            "train.lr_schedule=linear",
            "train.lr_decay_steps=0",
            "train.warmup_steps=0",
            f"train.group_size={DIALOGUES // 4}",
        ]
        changes += [f"data.train={self.folder.parent}/games.jsonl", "data.num_train=200", "data.eval=null", *overrides]
        words = [
            "train",
            "configs/matching_local.yaml",
            "--backend",
            "slime",
            *(f"--set={change}" for change in changes),
        ]
        own = ["--", "--on-cpu", "--save-dir", str(self.folder), "--eval-interval", "0"]
        own += [
            "--save-debug-rollout-data",
            f"{self.folder}/played/{{rollout_id}}.pt",
        ]  # slime's samples, with their requests
        with log.open("wb") as output:
            return subprocess.Popen(
                self.command(*words, *own),
                cwd=ROOT,
                env=self.environment,
                stdout=output,
                stderr=output,
                process_group=0,
            )

    def left(self) -> list[str]:
        """The command lines of processes of the run that are still there, some seconds after it."""
        deadline = time.monotonic() + 10
        while (found := self._there()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return found

    def _there(self) -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # gone, or another user's
                continue
        return found

    def games(self, step: int) -> list[str]:
        """The games that a step has in the log."""
        lines = map(json.loads, (self.folder / "logs" / "train.jsonl").read_text(encoding="utf-8").splitlines())
        return sorted({line["game_id"] for line in lines if line["step"] == step})


def wait(process: subprocess.Popen[bytes], log: Path, seconds: float = SECONDS) -> int:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        raise AssertionError(f"not over in {seconds:g} s:\n{last_lines(log)}") from None


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, int, list[str], str]:
    """A run that Ctrl-C ended after its first checkpoint: the step saved last, the processes that were left, and what it said."""
    need_slime()
    folder = tmp_path_factory.mktemp("run")
    run, log = Run(folder / "run"), folder / "first.log"
    process, began = run.train(log, "train.save_every=1"), time.monotonic()
    while process.poll() is None and time.monotonic() - began < SECONDS and not (run.folder / LAST_WHOLE).exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    code = wait(process, log, 60)
    saved = last_whole(run.folder)
    assert code == 130 and saved is not None, last_lines(log)
    return run, saved, run.left(), log.read_text(encoding="utf-8")


def test_ctrl_c_leaves_no_process_and_what_to_do_is_said(interrupted: Any) -> None:
    _, _, left, said = interrupted
    assert left == []
    assert "interrupted; the same command goes on from the last checkpoint" in said
    assert "step    1: reward 0." in said


@pytest.fixture(scope="module")
def resumed(interrupted: Any) -> tuple[Run, int, dict[str, list[float]], str]:
    """The same run, gone on; in its second step the partner is down for good. What slime measured, and what was said."""
    run, saved, _, _ = interrupted
    log = run.folder.parent / "second.log"
    (run.folder / "slime.log").rename(run.folder.parent / "slime-first.log")
    down = ["partner.kind=tests.slime_cpu.partners.Down", f"partner.args={{max_pairs: 1, dialogues: {DIALOGUES}}}"]
    code = wait(run.train(log, "train.save_every=25", *down), log)
    assert code == 1, last_lines(log)
    assert run.left() == []
    return run, saved + 1, dict(read_metrics([run.folder / "slime.log"])), log.read_text(encoding="utf-8")


def test_a_run_that_goes_on_trains_the_next_step_by_the_next_games(resumed: Any) -> None:
    run, step, measured, said = resumed
    assert f"goes on from checkpoint {step - 1}" in said
    rates = [RATE * (1 - (number + 1) / STEPS) for number in (step,)]
    assert measured["train/lr-pg_0"] == pytest.approx(rates)
    assert measured["train/kl_loss"][0] > 0, "the actor has left the reference"
    assert len({game for number in range(step + 1) for game in run.games(number)}) == 4 * (step + 1)


def test_the_engine_plays_with_the_weights_that_are_trained(resumed: Any) -> None:
    run, step, measured, _ = resumed
    first = dict(read_metrics([run.folder.parent / "slime-first.log"]))
    apart = [*first["train/train_rollout_logprob_abs_diff"], *measured["train/train_rollout_logprob_abs_diff"]]
    print(f"logprobs of trainer and engine, {len(apart)} steps, the last of a run that went on: {max(apart):.1e}")
    assert len(apart) > step and max(apart) < 1e-5


def test_a_turn_finds_all_that_was_said_before_in_the_engines_cache(resumed: Any) -> None:
    run, _, _, _ = resumed
    steps = [torch.load(path, weights_only=False) for path in sorted((run.folder / "played").glob("*.pt"))]
    told = 0
    for sample in (sample for step in steps for sample in step["samples"]):
        events = [event for event in sample["trace"]["events"] if event["name"] == "sglang_generate"]
        turns = [event["attrs"] for event in events if event["type"] == "span_end"]
        for before, turn in pairwise(turns):
            seen = before["prompt_tokens"] + before["completion_tokens"]
            assert turn["cached_tokens"] >= seen - 1, "all but the token that was sampled last"
            told += 1
    print(f"{told} later turns, each with what was said before it in the engine's cache")
    assert told > 3


def test_a_run_that_its_partner_stops_saves_the_step_before(resumed: Any) -> None:
    run, step, _, said = resumed
    assert "Training stops" in said and f"the {step + 1} steps trained so far are saved" in said
    assert last_whole(run.folder) == step


def test_a_checkpoint_is_exported_as_the_model_that_was_trained(resumed: Any, tmp_path: Path) -> None:
    run, step, _, _ = resumed
    own = load_file(next((run.folder / "hf" / str(step)).glob("*.safetensors")))
    shutil.move(run.folder / "hf", tmp_path / "hf")  # so that slime's tool converts Megatron's checkpoint
    slime, megatron = sources.find()
    variables = run.environment | {"SLIME_DIR": str(slime), "MEGATRON_DIR": str(megatron)}
    command = run.command("export", str(run.folder), "--output", str(tmp_path / "model"), "--step", str(step))
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = load_file(next((tmp_path / "model").glob("*.safetensors")))
    start = load_file(ROOT / "data" / "warmstart" / "model.safetensors")
    assert set(own.keys() ^ found.keys()) <= {"lm_head.weight"}, "tied to the embeddings"
    assert all(torch.equal(found[name], value) for name, value in own.items() if name in found)
    assert any(not torch.equal(found[name].float(), value.float()) for name, value in start.items() if name in found)
