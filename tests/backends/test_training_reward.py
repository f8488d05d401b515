"""The same dialogues are paid the same under TRL, slime and verl, and each trainer's own functions compare what is paid."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import pytest

from slim_rl.config import Config, parse_config
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import make_training_reward
from tests.backends.paid_batch import BY_DIALOGUE, CONTROLS, STEP, dialogues, paid, run, samples, token_advantages
from tests.fakes.upstream import NO_MEGATRON, NO_SLIME, megatrons, slimes
from tests.paths import ROOT


def compared(paid: list[float | None], config: Config, epsilon: float) -> list[float]:
    """What GRPO makes of training rewards; 0 for a failed dialogue."""
    out: list[float] = []
    for group in (paid[:4], paid[4:]):
        played = [reward for reward in group if reward is not None]
        unit = stdev(played) + epsilon if config.train.scale_rewards else 1.0
        out += [0.0 if reward is None else (reward - fmean(played)) / unit for reward in group]
    return out


def test_the_controls_pay_the_batch_differently() -> None:
    found = {name: paid(parse_config(run(name))) for name in CONTROLS}
    assert found["game"] == [0.3, 0.9, None, 0.6, 0.0, 0.8, 1.0, 0.4]
    assert found["priced"] == pytest.approx([0.25, 0.75, None, 0.6, -0.1, 0.75, 0.9, 0.2])
    assert found["tokens"] == pytest.approx([0.18, 0.7, None, 0.52, -0.16, 0.68, 0.84, 0.16])
    assert found["agreed"] == [1.0, 1.0, None, 1.0, 0.0, 1.0, 1.0, 1.0]
    assert found["shuffled"] != found["game"] and found["shuffled"][4] == 0.0 and found["shuffled"][2] is None
    assert sorted(found["shuffled"][5:]) == [0.4, 0.8, 1.0]  # type: ignore[type-var]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    from tests.fakes.models import tiny_qwen3

    folder = tmp_path_factory.mktemp("model")
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    tiny_qwen3(len(tokenizer), **ends).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("control", CONTROLS)
def test_trl_compares_what_is_paid(control: str, tmp_path: Path, model: Path) -> None:
    pytest.importorskip("trl")
    from slim_rl.backends.trl.rollouts import Rollouts
    from slim_rl.backends.trl.trainer import make_trainer
    from slim_rl.dialogue.chat import Chat
    from slim_rl.dialogue.games_file import load_rows
    from slim_rl.dialogue.log import DialogueLog
    from slim_rl.dialogue.worker import RolloutWorker
    from slim_rl.policies.transformers import TransformersPolicy, load_model

    class FixedRollouts(Rollouts):
        def _play(self, prompts: Any, step: int, rank: int) -> list[Dialogue]:
            return dialogues()

    files = {"data": {"train": str(tmp_path / "games.jsonl"), "num_train": 2}, "policy": {"model": str(model)}}
    config = parse_config(run(control) | files)
    weights, tokenizer = load_model(config.policy)
    chat = Chat(tokenizer)
    policy = TransformersPolicy(weights, chat.stop_ids, pad_id=tokenizer.pad_token_id)
    log = DialogueLog(tmp_path / "train.jsonl")
    rollouts = FixedRollouts(RolloutWorker(config, chat, policy), policy, load_rows(config), log)
    trainer = make_trainer(config, weights, tokenizer, rollouts, tmp_path / "run")
    trainer.state.global_step = STEP
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    if control in BY_DIALOGUE:
        expected = compared(paid(config), config, 1e-4)
        assert batch["advantages"].tolist() == pytest.approx(expected, abs=1e-5)
    else:
        for row, tokens in zip(batch["advantages"], token_advantages(config), strict=True):
            assert row.tolist() == pytest.approx([*tokens, *[0.0] * (len(row) - len(tokens))], abs=1e-6)
    trained = (batch["tool_mask"] * batch["completion_mask"]).sum(1)
    assert trained.tolist() == [sum(d.loss_mask) * (not d.failed) for d in dialogues()]


@pytest.mark.parametrize("control", ["shuffled", "turn"])
def test_trl_process_gets_its_own_share_of_the_step(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from slim_rl.backends.trl import rollouts

    training_reward = make_training_reward(parse_config(run(control)))
    monkeypatch.setattr(rollouts, "gather_object", lambda _: dialogues())
    process: Any = SimpleNamespace(worker=SimpleNamespace(training_reward=training_reward))
    shares = [rollouts.Rollouts._given(process, dialogues()[4 * rank :][:4], STEP, rank) for rank in (0, 1)]
    whole = training_reward(dialogues(), STEP)
    assert [reward for share in shares for reward in share.rewards] == whole.rewards
    assert [turns for share in shares for turns in share.advantages or ()] == (whole.advantages or [])


@pytest.mark.parametrize("control", CONTROLS)
def test_slime_compares_what_is_paid(control: str, tmp_path: Path) -> None:
    from tests.backends.slime_setup import make_args

    from slim_rl.rollout import normalize_rewards, use_turn_advantages  # isort: skip

    args = make_args(tmp_path, 0, tmp_path, run(control))
    config = parse_config(args.slim_rl)
    args.grpo_std_normalization = config.train.scale_rewards
    batch = samples()
    raw, normalized = normalize_rewards(args, batch)
    expected = paid(config)
    played = [reward for reward in expected[:4] if reward is not None]
    assert raw == pytest.approx([fmean(played) if reward is None else reward for reward in expected])
    assert normalized == pytest.approx(compared(expected, config, 1e-6))
    if control in BY_DIALOGUE:
        assert not any(getattr(sample, "teacher_log_probs", None) for sample in batch)
        return
    carried = [sample.teacher_log_probs for sample in batch]
    for sample, row, tokens in zip(batch, carried, token_advantages(config), strict=True):
        assert row == pytest.approx(tokens[: sample.response_length])
    data = {"teacher_log_probs": carried, "rewards": normalized}
    use_turn_advantages(args, data)
    assert data == {"advantages": carried, "returns": carried, "rewards": normalized}


def test_slime_shuffles_by_the_step_that_it_logs(tmp_path: Path) -> None:
    from tests.backends.slime_setup import make_args

    from slim_rl.rollout import log_rollout, normalize_rewards  # isort: skip

    def normalized(step: int) -> list[float]:
        args, batch = make_args(tmp_path, 0, tmp_path, run("shuffled")), samples()
        log_rollout(step, args, batch, None, 1.0)
        return normalize_rewards(args, batch)[0]

    assert normalized(STEP) == normalized(STEP)
    assert len({tuple(normalized(step)) for step in range(6)}) > 2


def test_slime_tells_what_was_paid_beside_the_games_reward() -> None:
    from slim_rl.dialogue.training_reward import train_reward  # isort: skip

    priced = parse_config(run("priced"))
    played = [reward for reward in paid(priced) if reward is not None]
    assert train_reward(priced, dialogues()) == {"train_reward": pytest.approx(fmean(played))}
    assert (
        train_reward(parse_config(run("game")), dialogues())
        == train_reward(parse_config(run("shuffled")), dialogues())
        == {}
    )


@pytest.mark.parametrize("slime", slimes() or [None], ids=str)
def test_slimes_own_functions_carry_it_to_the_loss(slime: Path | None, tmp_path: Path) -> None:
    """In a separate process, since this one may have a stand-in for slime: see `slime_paid`."""
    if slime is None or not megatrons():
        pytest.skip(NO_MEGATRON if slime else NO_SLIME)
    path = os.pathsep.join(map(str, [ROOT, ROOT / "tools", slime, *megatrons()]))
    command = [sys.executable, "-m", "tests.backends.slime_paid", str(tmp_path)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-len(CONTROLS) :] == list(CONTROLS)


def loop_of(config: Config) -> Any:
    """verl's agent loop, as far as it makes outputs of dialogues: nothing of an engine."""
    from slim_rl.backends.verl.agent_loop import DialogueLoop

    loop = object.__new__(DialogueLoop)
    worker = SimpleNamespace(training_reward=make_training_reward(config))
    loop.process = SimpleNamespace(config=config, worker=worker)  # type: ignore[assignment]
    return loop


ON_VERL = [name for name in CONTROLS if not make_training_reward(parse_config(run(name))).takes_the_step]


@pytest.mark.parametrize("control", ON_VERL)
def test_verl_compares_what_is_paid(control: str) -> None:
    pytest.importorskip("verl")
    import numpy as np
    import torch
    from verl.protocol import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    from slim_rl.backends.verl.settings import compose, settings

    config = parse_config(run(control))
    verl = compose(settings(config))
    order = [5, 0, 7, 3, 1, 6, 4]  # as verl balances rows; the failed dialogue is none of them
    batch = [dialogues()[row] for row in order]
    loop = loop_of(config)
    policy: Any = SimpleNamespace(seconds=0.0, preempted=-1, versions=[])
    rows = [loop._output(dialogue, policy).as_dict() for dialogue in batch]
    expected = paid(config)
    total = [row["rm_scores"].sum().item() for row in rows]
    if control in BY_DIALOGUE:  # else the advantages of turns stand there
        assert total == pytest.approx([expected[row] for row in order], abs=1e-6)
    padded = {
        name: torch.nn.utils.rnn.pad_sequence([row[name] for row in rows], batch_first=True)
        for name in ("rm_scores", "response_mask")
    }
    padded["token_level_rewards"] = padded.pop("rm_scores")
    data = DataProto.from_dict(
        tensors=padded, non_tensors={"uid": np.array([dialogue.group for dialogue in batch], dtype=object)}
    )
    algorithm = verl.algorithm
    found = compute_advantage(
        data, algorithm.adv_estimator, norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo, config=algorithm
    ).batch["advantages"]
    by_dialogue = compared(expected, config, 1e-6)
    for row, dialogue, advantages in zip(order, batch, found.tolist(), strict=True):
        tokens = (
            [bit * by_dialogue[row] for bit in dialogue.loss_mask]
            if control in BY_DIALOGUE
            else token_advantages(config)[row]
        )
        assert advantages[: len(tokens)] == pytest.approx(tokens, abs=1e-5)
        assert all(value == 0 for value in advantages[len(tokens) :])
    assert not math.isclose(max(map(max, found.tolist())), 0.0)


def test_verl_pays_held_out_games_by_the_game() -> None:
    pytest.importorskip("verl")
    loop = loop_of(parse_config(run("agreed")))
    policy: Any = SimpleNamespace(seconds=0.0, preempted=-1, versions=[])
    dialogue = dialogues()[0]
    assert loop._output(dialogue, policy).reward_score == 1.0
    dialogue.phase = "eval"
    assert loop._output(dialogue, policy).reward_score == 0.3
