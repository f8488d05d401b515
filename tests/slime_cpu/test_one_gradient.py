"""The same dialogues have the same gradient in slime, TRL, verl and on the page of plain torch, whatever they are paid.

The batch is `tests.backends.paid_batch`: two groups of four of unequal lengths, one dialogue failed, one was truncated, and here one turn is
masked; in self-play a group is a seat, and the seats of a game share its reward. The policy has left the reference, so that the KL term has a
gradient. Rewards are not divided by a group's deviation, to which the
trainers add epsilons of their own. Two things are slime's and verl's own:

    with the token loss slime counts a failed dialogue as one token of the batch
    verl knows turns by the mask alone, so that with credit by the turn one that is masked is none; nothing masks a turn there

    pytest -s tests/slime_cpu/test_one_gradient.py      prints each cell: the difference to slime's gradient, over slime's norm
"""

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.grpo_by_hand import Batch, logprobs, loss, make_batch
from slim_rl.config import Config, parse_config
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import make_training_reward
from tests.backends import paid_batch
from tests.backends.paid_batch import CONTROLS, STEP, run, token_advantages
from tests.backends.test_training_reward import verl_advantages, verl_rows
from tests.backends.trl_setup import batch, make_rollouts
from tests.examples.test_grpo_by_hand import groups_of, shaken
from tests.paths import ROOT

pytestmark = pytest.mark.slime
START = ROOT / "data" / "warmstart"
MASKED = 1  # the dialogue of which the first turn is masked: 0 in the mask, as if older weights had said it
BY_TURN = [name for name, control in CONTROLS.items() if "credit" in control]
SELFPLAY = "game, self-play"
CELLS = [*CONTROLS, SELFPLAY, *(f"{control}, one masked" for control in BY_TURN)]
SAME = 1e-5
Gradient = dict[str, Tensor]


def data_of(cell: str, form: str, kl_coef: float) -> dict[str, Any]:
    """A run's config, as a file has it."""
    data = run(cell.partition(",")[0])
    data["train"] |= {"loss": form, "kl_coef": kl_coef, "scale_rewards": False}
    return data | ({"partner": {"kind": "self"}} if cell == SELFPLAY else {})


def config_of(cell: str, form: str, kl_coef: float, folder: Path) -> Config:
    files = {"data": {"train": str(folder / "games.jsonl"), "num_train": 2}, "policy": {"model": str(START)}}
    return parse_config(data_of(cell, form, kl_coef) | files)


def load(path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose weights are no longer the reference's."""
    folder, model = tmp_path_factory.mktemp("policy"), load(START)
    shaken(model)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(START).save_pretrained(folder)
    return folder


def dialogues_of(cell: str, policy: Path) -> list[Dialogue]:
    """The batch, of various tokens, with the logprobs that the policy gives them."""
    rng, batch = random.Random(0), paid_batch.dialogues()
    for dialogue in batch:
        dialogue.prompt_ids = [rng.randrange(600) for _ in range(rng.randrange(3, 9))]
        dialogue.response_ids = [rng.randrange(600) for _ in dialogue.response_ids]
    if cell not in BY_TURN:
        batch[MASKED].loss_mask[:2] = [0, 0]
    if cell == SELFPLAY:
        for first, second in zip(batch[:4], batch[4:], strict=True):
            second.seat, second.reward, second.stop_reason = 1, first.reward, first.stop_reason
    model, config = load(policy), parse_config({})
    for dialogue in batch:
        ids = torch.tensor([dialogue.prompt_ids + dialogue.response_ids])
        with torch.no_grad():
            found = logprobs(model, Batch(ids[:, :-1], ids[:, 1:], ids, ids), config.policy.temperature)[0]
        told = found[len(dialogue.prompt_ids) - 1 :].tolist()
        dialogue.logprobs = [value * bit for value, bit in zip(told, dialogue.loss_mask, strict=True)]
    return batch


@pytest.fixture(scope="module")
def batches(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each cell's dialogues."""
    folder = tmp_path_factory.mktemp("batches")
    files = {cell: folder / f"{number}" for number, cell in enumerate(CELLS)}
    for cell, file in files.items():
        torch.save(dialogues_of(cell, policy), file)
    return files


@pytest.fixture(scope="module", params=[(form, kl) for form in ("sequence", "token") for kl in (0.0, 0.5)], ids=str)
def by_slime(request: Any, slime: Any, policy: Path, batches: dict[str, Path]) -> Any:
    """The loss, the KL's coefficient, and slime's gradient in each cell."""
    form, kl_coef = request.param
    cells = {cell: (data_of(cell, form, kl_coef), file) for cell, file in batches.items()}
    return form, kl_coef, slime("gradients", model=policy, reference=START, cells=cells, loss=form, kl_coef=kl_coef)


def gradient(model: Any, value: Tensor) -> Gradient:
    model.zero_grad()
    value.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def by_hand(model: Any, reference: Any, dialogues: list[Dialogue], config: Config) -> Gradient:
    paid = make_training_reward(config)(dialogues, STEP).rewards
    for dialogue, reward in zip(dialogues, paid, strict=True):
        dialogue.reward = reward
    batch = make_batch(groups_of(dialogues), config)
    if make_training_reward(config).by_turn:
        rows = [pair for pair in zip(dialogues, token_advantages(config), strict=True) if not pair[0].failed]
        turns = torch.zeros(batch.ids.shape)
        for row, (dialogue, tokens) in zip(turns, rows, strict=True):
            start = len(dialogue.prompt_ids) - 1
            row[start : start + len(tokens)] = torch.tensor(tokens)
        batch = batch._replace(advantages=turns)
    return gradient(model, loss(model, reference, batch, config))


def by_trl(state: Any, dialogues: list[Dialogue], config: Config, folder: Path) -> Gradient:
    trainer, _ = make_rollouts(config, folder, played=dialogues)
    trainer.model.load_state_dict(state)
    trainer.state.global_step = STEP
    return gradient(trainer.model, trainer._compute_loss(trainer.model, batch(trainer)))


def by_verl(model: Any, reference: Any, dialogues: list[Dialogue], config: Config) -> Gradient:
    """verl's advantages and its actor's loss. A dialogue that failed is not in verl's batch at all."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    from slim_rl.backends.verl.settings import compose, settings

    verl, played = compose(settings(config)), [dialogue for dialogue in dialogues if not dialogue.failed]
    rows = verl_rows(config, played)
    advantages = verl_advantages(verl.algorithm, rows, played)

    def nested(rows: list[Tensor]) -> Tensor:
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    def logprobs_by(some: Any) -> list[Tensor]:
        """As verl's engines give them: of each token, what the next one had; the last has none."""
        found = []
        for dialogue in played:
            ids = torch.tensor([dialogue.prompt_ids + dialogue.response_ids])
            own = logprobs(some, Batch(ids[:, :-1], ids[:, 1:], ids, ids), config.policy.temperature)[0]
            found.append(torch.cat([own, own.new_zeros(1)]))
        return found

    lengths = [len(dialogue.response_ids) for dialogue in played]

    def responses(rows: list[Tensor]) -> Tensor:
        return nested([row[-length - 1 : -1].detach() for row, length in zip(rows, lengths, strict=True)])

    now = logprobs_by(model)
    batch = TensorDict(
        {
            "prompts": nested([torch.tensor(dialogue.prompt_ids) for dialogue in played]),
            "responses": nested([torch.tensor(dialogue.response_ids) for dialogue in played]),
            "response_mask": nested([row["response_mask"] for row in rows]),
            "advantages": nested([row[:n] for row, n in zip(advantages, lengths, strict=True)]),
            "old_log_probs": responses(now),
            "ref_log_prob": responses(logprobs_by(reference)),
        },
        batch_size=len(played),
    )
    tokens = sum(int(row["response_mask"].sum()) for row in rows)
    # all that were dealt, as in the others: a step with failures is a smaller one
    tu.assign_non_tensor(batch, dp_size=1, batch_num_tokens=tokens, global_batch_size=len(dialogues))
    value, _ = ppo_loss(omega_conf_to_dataclass(verl.actor_rollout_ref.actor), {"log_probs": nested(now)}, batch)
    return gradient(model, value)


def flat(gradient: Gradient, names: list[str]) -> Tensor:
    return torch.cat([gradient[name].flatten() for name in names]).double()


@pytest.mark.parametrize("cell", CELLS)
def test_one_gradient(cell: str, by_slime: Any, policy: Path, batches: dict[str, Path], tmp_path: Path) -> None:
    form, kl_coef, theirs = by_slime
    config = config_of(cell, form, kl_coef, tmp_path)
    batch, model, reference = torch.load(batches[cell], weights_only=False), load(policy), load(START)
    names = sorted(theirs[cell])
    assert set(names) == {name for name, _ in model.named_parameters()}
    expected = flat(theirs[cell], names)
    if form == "token":
        tokens = sum(sum(dialogue.loss_mask) for dialogue in batch if not dialogue.failed)
        expected *= (tokens + sum(dialogue.failed for dialogue in batch)) / tokens
    found = {"TRL": by_trl(model.state_dict(), batch, config, tmp_path)}
    if not cell.endswith("masked") and not make_training_reward(config).takes_the_step:
        found["verl"] = by_verl(model, reference, batch, config)
    found["by hand"] = by_hand(model, reference, batch, config)  # last: it puts what is paid in the rewards' place
    apart = {name: float((flat(own, names) - expected).norm() / expected.norm()) for name, own in found.items()}
    cells = ", ".join(f"{name} {value:.1e}" for name, value in apart.items())
    print(f"{form} loss, KL {kl_coef}, {cell}: norm {expected.norm():.4f}; {cells}")
    assert expected.norm() > 1e-3
    assert max(apart.values()) <= SAME, cells


@pytest.mark.parametrize("form", ["sequence", "token"])
def test_two_ranks_have_the_gradient_of_one(form: str, slime: Any, policy: Path, batches: dict[str, Path]) -> None:
    """Two copies of the model in two processes, which share the batch and add up their gradients by gloo."""
    cells = {cell: (data_of(cell, form, 0.5), batches[cell]) for cell in ("game", "turn")}
    asked = {"model": policy, "reference": START, "cells": cells, "loss": form, "kl_coef": 0.5}
    one, two = slime("gradients", **asked), slime("gradients", ranks=2, **asked)
    for cell in cells:
        names = sorted(one[cell])
        expected, found = flat(one[cell], names), flat(two[cell], names)
        apart = float((found - expected).norm() / expected.norm())
        print(f"{form} loss, {cell}, two ranks: {apart:.1e}")
        assert apart <= SAME
