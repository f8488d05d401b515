"""The whole of it, playing and training in turn: groups called off, an engine that is killed, the same command again, a partner that goes down
for a while and then for good, and the way back.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402
from slime_cpu import sources  # noqa: E402

from slim_rl.backends.checkpoints import last_whole  # noqa: E402
from tests.fakes.openai_server import OpenAIServer  # noqa: E402
from tests.paths import ROOT  # noqa: E402
from tests.slime_cpu.conftest import PYTHON, need_slime  # noqa: E402
from tests.slime_cpu.runs import DIALOGUES, RATE, SECONDS, STEPS, Run, Started, versions  # noqa: E402

pytestmark = [pytest.mark.slime, pytest.mark.timeout(2 * SECONDS)]
DOWN_SECONDS, PLAYED = 2, DIALOGUES * 5 // 4  # with the spare game
# eight dialogues at a time, so that there is a middle; of six groups one is called off and a spare one dropped in each step
OWN = ["--sglang-server-concurrency=8", "--over-sampling-batch-size=6"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    need_slime()
    with OpenAIServer(latency=0.3) as partner:
        yield Run(tmp_path_factory.mktemp("run") / "run", partner)


def start(run: Run, name: str) -> Started:
    """The same command each time."""
    changes = ["slime.spare_games=1", "train.save_every=25", "train.stop_failures=0.2", "slime.engine_retry_seconds=4"]
    return run.start(run.folder.parent / f"{name}.log", *changes, own=OWN)


@pytest.fixture(scope="module")
def killed(run: Run) -> str:
    """What a run says whose engine is killed in its third step, while dialogues are played."""
    started = start(run, "first")
    started.until(lambda: len(run.logged()) == 2 * PLAYED)
    asked = len(run.partner.requests)
    started.until(lambda: len(run.partner.requests) > asked + DIALOGUES // 2)
    started.kill_the_engine()
    assert started.ended() == 1, started.said
    assert started.left() == []
    return started.said


def test_a_run_whose_engine_is_killed_saves_what_it_has_trained(run: Run, killed: str) -> None:
    (sentence,) = [line for line in killed.splitlines() if "SGLang is gone" in line]
    assert f"see {run.folder}/sglang.log" in sentence and "Training stops: " in sentence
    assert "the 2 steps trained so far are saved; the same command resumes from there" in sentence
    assert last_whole(run.folder) == 1
    assert [len(run.samples()[step]) for step in range(2)] == [DIALOGUES, DIALOGUES]


@pytest.fixture(scope="module")
def resumed(run: Run, killed: str) -> str:
    """The same command again: in its first step the partner is down for some seconds, in its second for good. What was said."""
    started, asked = start(run, "second"), len(run.partner.requests)
    started.until(lambda: len(run.partner.requests) > asked + DIALOGUES // 4)  # most still have to ask
    run.partner.down = True
    time.sleep(DOWN_SECONDS)
    run.partner.down = False
    # its dialogues are logged before the step is trained: the next step finds the partner down
    # (those of the killed run stay in the log until then)
    started.until(lambda: sum(line["step"] == 2 and not line["failure"] for line in run.logged()) == PLAYED)
    run.partner.down = True
    assert started.ended() == 1, started.said
    assert started.left() == []
    return started.said


def test_resumed_run_trains_on_the_next_games(run: Run, resumed: str) -> None:
    assert "run resumes from step 2 of" in resumed
    measured = run.measured()
    assert measured["train/lr-pg_0"] == pytest.approx([RATE * (1 - (step + 1) / STEPS) for step in range(3)])
    assert measured["train/kl_loss"][2] > 0, "the actor has left the reference"
    assert len({game for step in range(3) for game in run.games(step)}) == 5 * 3


def test_a_partner_that_is_down_for_a_while_costs_no_game(run: Run, resumed: str) -> None:
    step = [line for line in run.logged() if line["step"] == 2]
    retries = [turn["usage"]["retries"] for line in step for turn in line["turns"] if turn.get("usage")]
    assert len(step) == PLAYED and not any(line["failure"] for line in step)
    assert sum(retries) > 0


def test_the_engine_plays_with_the_weights_that_are_trained(run: Run, resumed: str) -> None:
    apart = run.measured()["train/train_rollout_logprob_abs_diff"]
    print(f"logprobs of trainer and engine, by step: {apart}")
    assert len(apart) == 3 and max(apart) < 1e-5
    assert all(len(versions(sample)) == 1 for step in range(3) for sample in run.samples()[step])


def test_turn_finds_its_prefix_in_the_engine_cache(run: Run, resumed: str) -> None:
    later = 0
    for sample in [sample for step in range(3) for sample in run.samples()[step]]:
        prompt = len(sample["tokens"]) - sample["response_length"]
        spans = [turn["span"] for turn in sample["metadata"]["dialogue"]["turns"] if turn["role"] == "policy"]
        known = sum(prompt + end - 1 for _, end in spans[:-1])  # all but the token that was sampled last
        assert sample["prefix_cache_info"]["cached_tokens"] >= known
        later += len(spans) - 1
    print(f"{later} later turns, each with what was said before it in the engine's cache")
    assert later > 0


def test_a_run_that_its_partner_stops_saves_the_step_before(run: Run, resumed: str) -> None:
    assert "Training stops: The partner's endpoint" in resumed and "the 3 steps trained so far are saved" in resumed
    assert last_whole(run.folder) == 2


def test_a_checkpoint_is_exported_as_the_model_that_was_trained(run: Run, resumed: str, tmp_path: Path) -> None:
    own = load_file(next((run.folder / "hf" / "2").glob("*.safetensors")))
    shutil.move(run.folder / "hf", tmp_path / "hf")  # so that slime's tool converts Megatron's checkpoint
    slime, megatron = sources.find()
    variables = run.environment | {"SLIME_DIR": str(slime), "MEGATRON_DIR": str(megatron)}
    words = ["export", str(run.folder), "--output", str(tmp_path / "model"), "--step", "2"]
    command = [str(PYTHON), "-m", "slim_rl", *words]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = load_file(next((tmp_path / "model").glob("*.safetensors")))
    start = load_file(ROOT / "data" / "warmstart" / "model.safetensors")
    assert set(own.keys() ^ found.keys()) <= {"lm_head.weight"}, "tied to the embeddings"
    assert all(torch.equal(found[name], value) for name, value in own.items() if name in found)
    assert any(not torch.equal(found[name].float(), value.float()) for name, value in start.items() if name in found)
