"""ASYNC=full and bfloat16, by the whole stack: its partner is down for a minute, new weights come while dialogues are played; ended by Ctrl-C."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402

from slim_rl.backends.checkpoints import last_whole  # noqa: E402
from tests.fakes.openai_server import serving, shy_answer  # noqa: E402
from tests.slime_cpu.conftest import need_slime  # noqa: E402
from tests.slime_cpu.runs import DIALOGUES, SECONDS, Run, Started, versions  # noqa: E402

pytestmark = [pytest.mark.slime, pytest.mark.timeout(2 * SECONDS)]
TOLD = 5  # steps
DOWN_SECONDS = 60


def reluctant(body: dict[str, Any]) -> str:
    """The shy partner, who rejects a plan first: every dialogue takes some turns."""
    rejected = any(message["content"].startswith("[reject]") for message in body["messages"])
    reply = shy_answer(body)
    return "[reject]" if reply == "[accept]" and not rejected else reply


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Started, int, list[str]]:
    """A run that Ctrl-C ended after some steps, with dialogues by two weights: its exit code, and the processes that were left."""
    need_slime()
    folder = tmp_path_factory.mktemp("async")
    with serving(answer=reluctant, latency=0.3) as partner:
        run = Run(folder / "run", partner)
        changes = ["train.steps=20", "train.save_every=1", "game.max_proposals=null"]
        changes += ["train.learning_rate=1e-5"]  # small: old weights are nearly the new ones
        changes += ["partner.openai.outage_wait_minutes=2"]
        started = run.start(folder / "said.log", *changes, own=["--sglang-dtype=bfloat16"], ASYNC="full")
        started.until(lambda: started.told(0))
        partner.down = True
        time.sleep(DOWN_SECONDS)
        partner.down = False
        started.until(lambda: started.told(TOLD - 1))
        partner.latency = 4.0  # where training is slow, only long dialogues are still played when its weights come
        started.until(lambda: any(len(found) > 1 for found in dialogues_of(run)))
        code = started.interrupt()
        return run, started, code, started.left()


def dialogues_of(run: Run) -> list[dict[str, bool]]:
    return [versions(sample) for samples in run.samples().values() for sample in samples]


def test_ctrl_c_leaves_no_process_and_what_to_do_is_said(ended: Any) -> None:
    run, started, code, left = ended
    assert code == 130 and left == []
    assert "interrupted; the same command resumes from the last checkpoint" in started.said
    assert (last_whole(run.folder) or 0) >= TOLD - 3


def test_a_partner_that_is_down_for_a_minute_costs_no_game(ended: Any) -> None:
    run, *_ = ended
    waited = [turn["seconds"] for line in run.logged() for turn in line["turns"] if turn["role"] == "partner"]
    assert max(waited) > DOWN_SECONDS / 2, "some turn was asked for while it was down"
    assert not any(line["failure"] for line in run.logged())


def test_a_dialogue_of_two_weights_is_trained_whole(ended: Any) -> None:
    run, *_ = ended
    dialogues = dialogues_of(run)
    mixed = [found for found in dialogues if len(found) > 1]
    print(f"{len(mixed)} of {len(dialogues)} dialogues by two weights or more")
    assert len(dialogues) >= TOLD * DIALOGUES and mixed
    assert all(all(found.values()) for found in dialogues)


def test_bfloat16_trains_and_plays_as_one_model(ended: Any) -> None:
    run, *_ = ended
    measured = run.measured()
    losses, apart = measured["train/loss"], measured["train/train_rollout_logprob_abs_diff"]
    assert all(map(math.isfinite, [*losses, *measured["train/grad_norm"]])) and len(losses) >= TOLD - 1
    print(f"logprobs of trainer and engine in bfloat16: {max(apart):.1e}")
    assert 1e-5 < max(apart) < 0.03
    weights = load_file(next((run.folder / "hf" / "1").glob("*.safetensors")))
    assert all(value.dtype == torch.bfloat16 and value.isfinite().all() for value in weights.values())
