"""The agent loops in verl's real worker, with a server of its protocol: masks, baselines, failures, and what the gradient sees."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_policy_loss_fn, kl_penalty
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from slim_rl.backends.verl.plugin import grpo_played
from slim_rl.config import Config
from slim_rl.dialogue.log import read_log
from tests.backends.verl_setup import Server, checkpoint, make_run

PLANS = [
    "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel",
    "[propose]\nBLEU: Daniel Nguyen\nElectra: Ava Li\nGloVe: Sofia Patel",
]


def speak(text: str) -> str:
    """Asks, then proposes until something is accepted; accepts what the other seat proposes."""
    turn = text.count("<|im_start|>assistant")
    if text.rstrip().endswith("or [reject].<|im_end|>\n<|im_start|>assistant"):
        return "[accept]"
    return "[message] What is Ava Li on BLEU?" if turn == 1 else PLANS[turn % 2]


class Worker(AgentLoopWorker):
    """verl's worker up to where its newer trainer would put the outputs into the TransferQueue."""

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **row: Any) -> list[AgentLoopOutput]:
        return output if isinstance(output, list) else [output]

    async def play(self, rows: list[dict[str, Any]], n: int) -> dict[str, list[AgentLoopOutput]]:
        """n sessions of each row, side by side, as `AgentLoopWorkerTQ._run_prompt` has them; by "{uid}_{session}"."""
        name = self.rollout_config.agent.default_agent_loop
        params = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
        trajectory = {"step": 5, "sample_index": 0, "rollout_n": 0, "validate": False}
        keys = [(row, session) for row in rows for session in range(n)]
        outputs = await asyncio.gather(
            *(
                self._run_agent_loop(params, trajectory, agent_name=name, session_id=i, global_steps=5, **row)
                for row, i in keys
            )
        )
        return {f"{row['uid']}_{i}": output for (row, i), output in zip(keys, outputs, strict=True)}  # type: ignore[misc]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    return checkpoint(tmp_path_factory.mktemp("model"), tokenizer)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Callable[..., tuple[Config, Any]]:
    """Runs by their settings, each written once."""
    made: dict[str, tuple[Config, Any]] = {}

    def run(settings: dict[str, Any] | None = None, *extra: str) -> tuple[Config, Any]:
        key = json.dumps([settings, extra])
        if key not in made:
            made[key] = make_run(tmp_path_factory.mktemp("run"), model, settings or {}, *extra)
        return made[key]

    return run


@pytest.fixture(scope="module")
def rows(runs: Callable[..., tuple[Config, Any]], tokenizer: Any) -> list[dict[str, Any]]:
    """Two games, read by verl's own dataset."""
    _, verl = runs()
    dataset = RLHFDataset(verl.data.train_files, tokenizer, verl.data)
    assert len(dataset) == 4
    return [dataset[index] | {"uid": f"game{index}"} for index in range(2)]


@pytest.fixture
def logs(runs: Callable[..., tuple[Config, Any]]) -> Iterator[Callable[[Config], list[Any]]]:
    def read(config: Config) -> list[Any]:
        folder = Path(config.output_dir) / config.name / config.log.dir
        return [dialogue for path in folder.glob("*.jsonl") for dialogue in read_log(path)]

    yield read


def play(verl: Any, server: Server, rows: list[dict[str, Any]], n: int = 4) -> dict[str, list[AgentLoopOutput]]:
    return asyncio.run(Worker(verl, server).play(rows, n))  # type: ignore[arg-type]


def batch_of(outputs: dict[str, list[AgentLoopOutput]]) -> tuple[DataProto, list[str]]:
    """The outputs as verl's newer trainer pads them, and their keys in its TransferQueue."""
    keys, rows = [], []
    for session, several in outputs.items():
        for index, output in enumerate(several):
            keys.append(f"{session}_{index}")
            rows.append(output.as_dict())
    fields = {"responses": 0, "response_mask": 0, "rm_scores": 0.0, "rollout_log_probs": 0.0}
    padded = {
        name: torch.nn.utils.rnn.pad_sequence([row[name] for row in rows], batch_first=True, padding_value=fill)
        for name, fill in fields.items()
    }
    padded["token_level_rewards"] = padded["rm_scores"].clone()
    uids = np.array([key.rsplit("_", 2)[0] for key in keys], dtype=object)
    return DataProto.from_dict(tensors=padded, non_tensors={"uid": uids}), keys


def test_the_mask_is_one_on_the_policys_tokens_alone(runs: Any, rows: Any, tokenizer: Any, logs: Any) -> None:
    config, verl = runs()
    server = Server(tokenizer, speak)
    outputs = play(verl, server, rows, n=1)
    sampled = {request: [] for request, _, _ in server.calls}  # type: ignore[var-annotated]
    for request, prompt, params in server.calls:
        assert params["stop_token_ids"] == [tokenizer.eos_token_id]
        assert 0 < params["max_tokens"] <= 128
        sampled[request].append(prompt)
    for (output,), prompts in zip(outputs.values(), sampled.values(), strict=True):
        whole = output.prompt_ids + output.response_ids
        assert all(whole[: len(prompt)] == prompt for prompt in prompts)
        assert len(output.response_mask) == len(output.response_ids) == len(output.response_logprobs or [])
        spoken = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
        text = tokenizer.decode(spoken)
        assert text.startswith("[message] What is Ava Li on BLEU?<|im_end|>[propose]")
        heard = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if not mask]
        assert "<|im_start|>user" in tokenizer.decode(heard)
        assert "[propose]" not in tokenizer.decode(heard)
        logprobs = np.array(output.response_logprobs)
        assert (logprobs[np.array(output.response_mask) == 0] == 0).all()
        assert (logprobs[np.array(output.response_mask) == 1] < 0).all()
        assert output.response_mask[-1] == 1  # where verl puts the reward
        assert 0 < output.reward_score <= 1  # type: ignore[operator]
        assert output.num_turns >= 4
        assert output.extra_fields["dialogue"]["stop_reason"] == "agreed"
        assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (3, 3)
    assert {dialogue.step for dialogue in logs(config)} == {5}


def test_the_gradient_at_the_partners_tokens_is_exactly_zero(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs()

    def differently(text: str) -> str:  # so that a group has a spread of rewards
        differently.calls += 1  # type: ignore[attr-defined]
        turn = text.count("<|im_start|>assistant")
        return (
            "[message] Hello there." if turn == 1 and differently.calls % 3 else PLANS[(turn + differently.calls) % 2]
        )  # type: ignore[attr-defined]

    differently.calls = 0  # type: ignore[attr-defined]
    data, keys = batch_of(play(verl, Server(tokenizer, differently), rows))
    data = compute_advantage_for_multi_trajectories(data, keys, "grpo", config=verl.algorithm)
    mask = data.batch["response_mask"]
    old = data.batch["rollout_log_probs"]
    advantages = data.batch["advantages"]
    assert (advantages[mask == 1] != 0).any()
    assert (advantages[mask == 0] == 0).all()

    # The parts of verl's actor loss, as its worker adds them up.
    new = (old + 0.1 * torch.randn_like(old)).requires_grad_()
    actor = omega_conf_to_dataclass(verl.actor_rollout_ref.actor)
    loss, _ = get_policy_loss_fn("vanilla")(old, new, advantages, mask, "token-mean", config=actor)
    divergence = kl_penalty(new, old, "low_var_kl")
    (loss + 0.1 * (divergence * mask).sum() / mask.sum()).backward()
    assert (new.grad[mask == 0] == 0).all()
    assert (new.grad[mask == 1] != 0).any()


def test_self_play_gives_each_seat_its_view_and_the_same_advantage(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs({"partner": {"kind": "self"}})
    calls = iter(range(10**6))

    def differently(text: str) -> str:
        turn = text.count("<|im_start|>assistant")
        if text.rstrip().endswith("or [reject].<|im_end|>\n<|im_start|>assistant"):
            return "[accept]"
        return "[message] Hello." if turn == 1 else PLANS[next(calls) % 2]

    outputs = play(verl, Server(tokenizer, differently), rows)
    for first, second in outputs.values():
        assert first.reward_score == second.reward_score
        said = [
            tokenizer.decode([t for t, m in zip(o.response_ids, o.response_mask, strict=True) if m])
            for o in (first, second)
        ]
        heard = [
            tokenizer.decode([t for t, m in zip(o.response_ids, o.response_mask, strict=True) if not m])
            for o in (first, second)
        ]
        assert "[propose]" in said[0] and "[accept]" in said[1]
        assert "[propose]" in heard[1] and "[accept]" not in heard[0]
        prompts = [tokenizer.decode(o.prompt_ids) for o in (first, second)]
        assert "You speak first" in prompts[0] and "Your partner speaks first" in prompts[1]

    data, keys = batch_of(outputs)
    data = compute_advantage_for_multi_trajectories(data, keys, "grpo", config=verl.algorithm)
    seen = advantages_of(data)
    # A seat's baseline is its own seat's group: verl's GRPO on one seat's rows alone gives the very same.
    for seat in (0, 1):
        alone = data.select_idxs([i for i, key in enumerate(keys) if key.endswith(f"_{seat}")])
        expected = advantages_of(compute_advantage(alone, "grpo", config=verl.algorithm))
        assert torch.equal(seen[[i for i, key in enumerate(keys) if key.endswith(f"_{seat}")]], expected)
    assert len(set(seen.tolist())) > 1


def advantages_of(data: DataProto) -> torch.Tensor:
    """Each row's advantage: the one value its trainable tokens have."""
    return torch.stack(
        [row[mask == 1][0] for row, mask in zip(data.batch["advantages"], data.batch["response_mask"], strict=True)]
    )


def failing(sessions: set[int]) -> Callable[[str], str | Exception]:
    """The engine gives up on the n-th dialogues that open."""
    opened = iter(range(10**6))

    def one(text: str) -> str | Exception:
        if text.count("<|im_start|>assistant") == 1 and next(opened) in sessions:
            return RuntimeError("the engine is gone")
        return speak(text)

    return one


def test_a_failed_dialogue_leaves_no_trace_in_its_group(runs: Any, rows: Any, tokenizer: Any, logs: Any) -> None:
    config, verl = runs({"seed": 1})
    outputs = play(verl, Server(tokenizer, failing({1})), rows[:1])
    assert [len(several) for several in outputs.values()] == [1, 0, 1, 1]
    failed = [dialogue for dialogue in logs(config) if dialogue.failed]
    assert len(failed) == 1
    assert "the engine is gone" in failed[0].failure


def test_a_lone_survivor_has_nothing_to_be_compared_with(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs()
    outputs = play(verl, Server(tokenizer, failing({0, 1, 3})), rows[:1])
    assert not any(outputs.values())
    # verl's own GRPO would have given it its bare reward for an advantage
    kept = play(runs({}, "algorithm.adv_estimator=gae")[1], Server(tokenizer, failing({0, 1, 3})), rows[:1])
    assert sum(map(len, kept.values())) == 1  # a critic needs no siblings
    data, keys = batch_of(kept)
    data = compute_advantage_for_multi_trajectories(data, keys, "grpo", config=verl.algorithm)
    assert advantages_of(data).item() == pytest.approx(data.batch["rm_scores"].sum().item(), abs=1e-4)


def test_under_the_older_trainer_a_failed_dialogue_shifts_no_baseline(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs({}, "trainer.use_v1=false")
    dicts = [{key: value for key, value in row.items() if key != "uid"} for row in rows]
    data = DataProto.from_single_dict(collate_fn(dicts))
    data.non_tensor_batch["uid"] = np.array(["a", "b"], dtype=object)
    data = data.repeat(4, interleave=True)
    data.non_tensor_batch["priority"] = np.arange(8)

    def batch(server: Server) -> Any:
        worker = AgentLoopWorker(verl, server)  # type: ignore[arg-type]
        out = asyncio.run(worker.generate_sequences(data))
        out.batch["token_level_rewards"] = out.batch["rm_scores"]
        out.non_tensor_batch["uid"] = data.non_tensor_batch["uid"]
        return out

    out = batch(Server(tokenizer, failing({0, 5, 6, 7})))
    assert out.batch["response_mask"].sum(-1).eq(0).tolist() == [True, *[False] * 4, True, True, True]
    rewards = out.batch["token_level_rewards"]
    spread = rewards + torch.arange(8)[:, None] * 0.1 * (rewards != 0)  # rewards that differ within a group
    out.batch["token_level_rewards"] = spread
    out = compute_advantage(out, "grpo_played", config=verl.algorithm)
    advantages = out.batch["advantages"].abs().sum(-1)
    assert advantages[[0, 4, 5, 6, 7]].eq(0).all()  # failed, or alone
    played = out.select_idxs([1, 2, 3])
    expected = compute_advantage(played, "grpo", config=verl.algorithm).batch["advantages"]
    assert torch.equal(out.batch["advantages"][1:4], expected)


def test_grpo_played_is_verls_grpo_where_nothing_failed() -> None:
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rewards = torch.rand(6, 5) * torch.tensor([0.0, 0, 0, 0, 1])
    mask = torch.ones(6, 5)
    index = np.array(["a", "a", "a", "b", "b", "b"], dtype=object)
    for scale in (True, False):
        ours, _ = grpo_played(rewards, mask, index, config={"norm_adv_by_std_in_grpo": scale})
        theirs, _ = compute_grpo_outcome_advantage(rewards.clone(), mask, index, norm_adv_by_std_in_grpo=scale)
        assert torch.equal(ours, theirs)


def test_a_long_dialogue_stays_within_verls_batch(runs: Any, rows: Any, tokenizer: Any) -> None:
    _, verl = runs({}, "data.max_response_length=60")
    outputs = play(verl, Server(tokenizer, speak), rows[:1], n=2)
    assert all(len(output.response_ids) <= 60 for (output,) in outputs.values())
    assert {output.reward_score for (output,) in outputs.values()} == {0.0}


def test_a_share_of_nothing_enters_no_average_of_verls(runs: Any, rows: list[dict[str, Any]], tokenizer: Any) -> None:
    from verl.trainer.ppo.metric_utils import process_validation_metrics

    _, verl = runs()
    silent = play(verl, Server(tokenizer, lambda text: PLANS[0]), rows[:1], n=1)["game0_0"]
    asking = play(verl, Server(tokenizer, speak), rows[:1], n=1)["game0_0"]
    found = [output.extra_fields["reward_extra_info"] for (output,) in (silent, asking)]
    assert found[0]["answered"] is None and found[1]["answered"] in (0.0, 1.0)
    merged = {name: [each[name] for each in found] for name in found[0]}
    means = process_validation_metrics(["matching"] * 2, ["u", "u"], merged)["matching"]
    assert means["answered"]["mean@1"] == found[1]["answered"]
    assert means["questions"]["mean@2"] == 0.5 and "reward" not in means


def test_a_parquet_file_of_generate_is_read_too(runs: Any, tokenizer: Any, tmp_path: Path) -> None:
    from slim_rl.commands.generate import command as generate

    generate(num_games=2, output=tmp_path / "games.parquet", n=3)
    _, verl = runs()
    dataset = RLHFDataset(str(tmp_path / "games.parquet"), tokenizer, verl.data)
    outputs = play(verl, Server(tokenizer, speak), [dataset[0] | {"uid": "x"}], n=2)
    assert all(output.reward_score > 0 for (output,) in outputs.values())  # type: ignore[operator]


async def test_the_reward_manager_scores_an_answer_and_counts_what_it_cannot_read(runs: Any, tokenizer: Any) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    _config, verl = runs(
        {"environment": "slim_rl.games.matching.planning.PlanningEnv", "verl": {"mode": "single_turn"}}
    )
    manager = load_reward_manager(verl, tokenizer)
    dataset = RLHFDataset(verl.data.train_files, tokenizer, verl.data)
    row = dataset[0]
    state = json.loads(row["extra_info"]["game_state"])

    async def score(answer: str) -> dict[str, Any]:
        ids = torch.tensor([*tokenizer.encode(answer), tokenizer.eos_token_id])
        data = DataProto.from_dict(
            tensors={"responses": ids[None], "attention_mask": torch.ones(1, 7 + len(ids))},
            non_tensors={
                key: np.array([row[key]], dtype=object) for key in ("data_source", "extra_info", "reward_model")
            },
        )
        return await manager.run_single(data)

    good = await score(PLANS[0])
    total = sum(state["table"][reviewer][reviewer] for reviewer in range(3))
    assert good["reward_score"] == pytest.approx(total / state["best_assignment_reward"])
    for nonsense in (
        "",
        "I would give BLEU to Ava.",
        "[propose]\nBLEU: Ava Li",
        "[propose]\nBLEU: Nobody\nElectra: Ava Li",
    ):
        assert await score(nonsense) == {
            "reward_score": 0.0,
            "reward_extra_info": {
                "unparsable": 1.0,
                "unparsable_share": pytest.approx(manager.unparsable / manager.scored),
            },
        }
    assert (manager.scored, manager.unparsable) == (5, 4)


def test_a_reference_of_its_own_takes_the_place_of_the_policys(model: Path, tmp_path: Path, tokenizer: Any) -> None:
    from verl.workers.config import HFModelConfig
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorkerConfig

    from slim_rl.backends.verl.plugin import ReferenceWorker, with_reference

    assert ActorRolloutRefWorker.ref_worker_cls is ReferenceWorker
    other = checkpoint(tmp_path / "reference", tokenizer)
    policy = SimpleNamespace(model=HFModelConfig(path=str(model)))
    config = TrainingWorkerConfig(model_type="language_model", model_config=policy.model, engine_config=None)  # type: ignore[arg-type]
    changed = with_reference(config, str(other))
    assert changed.model_config.local_path == str(other)
    assert changed.model_config.hf_config._name_or_path == str(other)
    assert config.model_config.local_path == str(model)
