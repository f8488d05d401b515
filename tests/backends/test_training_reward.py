"""The same dialogues are given the same under TRL, slime and verl, and each trainer's own functions compare what is given."""

from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest.mock import Mock

import pytest

from slim_rl.config import Config, parse_config
from slim_rl.dialogue.training_reward import make_training_reward, train_reward
from tests.backends.paid_batch import BY_DIALOGUE, CONTROLS, STEP, dialogues, paid, run, samples, token_advantages


def compared(paid: list[float | None], config: Config, epsilon: float) -> list[float]:
    """What GRPO makes of training rewards; 0 for a failed dialogue."""
    out: list[float] = []
    for group in (paid[:4], paid[4:]):
        played = [reward for reward in group if reward is not None]
        unit = stdev(played) + epsilon if config.train.scale_rewards else 1.0
        out += [0.0 if reward is None else (reward - fmean(played)) / unit for reward in group]
    return out


def test_train_reward_is_tracked_unless_it_is_the_games() -> None:
    tracked = {name: train_reward(parse_config(run(name)), dialogues()) for name in ("priced", "game", "shuffled")}
    assert tracked == {"priced": {"train_reward": pytest.approx(3.35 / 7)}, "game": {}, "shuffled": {}}


@pytest.mark.parametrize("control", CONTROLS)
def test_trl_compares_what_is_paid(control: str, tmp_path: Path, model: Path) -> None:
    from tests.backends.trl_setup import batch, make_rollouts

    files = {"data": {"train": str(tmp_path / "games.jsonl"), "num_train": 2}, "policy": {"model": str(model)}}
    config = parse_config(run(control) | files)
    trainer, _ = make_rollouts(config, tmp_path, played=dialogues())
    trainer.state.global_step = STEP
    found = batch(trainer)
    if control in BY_DIALOGUE:
        assert found["advantages"].tolist() == pytest.approx(compared(paid(config), config, 1e-4), abs=1e-5)
    else:
        for row, tokens in zip(found["advantages"], token_advantages(config), strict=True):
            assert row.tolist() == pytest.approx([*tokens, *[0.0] * (len(row) - len(tokens))], abs=1e-6)
    mask = (found["tool_mask"] * found["completion_mask"]).sum(1)
    assert mask.tolist() == [sum(d.loss_mask) * (not d.failed) for d in dialogues()]


@pytest.mark.parametrize("control", ["shuffled", "turn"])
def test_trl_process_gets_its_own_share_of_the_step(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from slim_rl.backends.trl import rollouts

    whole = (training_reward := make_training_reward(parse_config(run(control))))(dialogues(), STEP)
    monkeypatch.setattr(rollouts, "gather_object", lambda _: dialogues())
    monkeypatch.setattr(rollouts.Rollouts, "_play", lambda _, prompts, step, rank: dialogues()[4 * rank :][:4])
    worker = Mock(config=training_reward.config, training_reward=training_reward, chat=None)
    both = [rollouts.Rollouts(worker, Mock(), [], Mock()) for _ in (0, 1)]
    for rank, process in enumerate(both):
        process([], Mock(**{"state.global_step": STEP, "accelerator.process_index": rank}))
    assert [turns for process in both for turns in process.given.advantages or ()] == (whole.advantages or [])
    given = [reward for process in both for reward in process.given.rewards]
    assert given == whole.rewards and both[0].metrics == both[1].metrics


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
    carried = [getattr(sample, "teacher_log_probs", None) for sample in batch]
    if control in BY_DIALOGUE:
        assert not any(carried)
        return
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


def verl_rows(config: Config, batch: list[Any]) -> list[dict[str, Any]]:
    """The rows that verl's agent loop makes of dialogues; it needs nothing of an engine for that."""
    from slim_rl.backends.verl.agent_loop import DialogueLoop

    loop = object.__new__(DialogueLoop)
    worker = Mock(training_reward=make_training_reward(config), config=config)
    loop.process = Mock(worker=worker)  # type: ignore[assignment]
    policy: Any = Mock(seconds=0.0, preempted=-1, versions=[])
    return [loop._output(dialogue, policy).as_dict() for dialogue in batch]


def verl_advantages(algorithm: Any, rows: list[dict[str, Any]], batch: list[Any]) -> Any:
    """What verl computes of the rows' scores, padded."""
    import numpy as np
    import torch
    from verl.protocol import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    columns = {"token_level_rewards": "rm_scores", "response_mask": "response_mask"}
    pad = torch.nn.utils.rnn.pad_sequence
    padded = {to: pad([row[name] for row in rows], batch_first=True) for to, name in columns.items()}
    uids = np.array([dialogue.group for dialogue in batch], dtype=object)
    data = DataProto.from_dict(tensors=padded, non_tensors={"uid": uids})
    scaled = algorithm.norm_adv_by_std_in_grpo
    found = compute_advantage(data, algorithm.adv_estimator, norm_adv_by_std_in_grpo=scaled, config=algorithm)
    return found.batch["advantages"]


ON_VERL = [name for name in CONTROLS if not make_training_reward(parse_config(run(name))).takes_the_step]


@pytest.mark.parametrize("control", ON_VERL)
def test_verl_compares_what_is_paid(control: str) -> None:
    pytest.importorskip("verl")
    from slim_rl.backends.verl.settings import compose, settings

    config = parse_config(run(control))
    order = [5, 0, 7, 3, 1, 6, 4]  # as verl balances rows; the failed dialogue is none of them
    batch = [dialogues()[row] for row in order]
    rows, given = verl_rows(config, batch), paid(config)
    assert [row["rm_scores"].sum().item() for row in rows] == pytest.approx([given[row] for row in order], abs=1e-6)
    found = verl_advantages(compose(settings(config)).algorithm, rows, batch).tolist()
    for row, dialogue, advantages in zip(order, batch, found, strict=True):
        tokens = [bit * compared(given, config, 1e-6)[row] for bit in dialogue.loss_mask]
        assert advantages == pytest.approx([*tokens, *[0.0] * (len(advantages) - len(tokens))], abs=1e-5)
    assert max(map(max, found)) > 0
