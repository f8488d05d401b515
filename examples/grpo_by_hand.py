"""GRPO on one page: a language model plays games, and its messages in games of high reward become more likely.

    python -m examples.grpo_by_hand [--steps 5] [--set key=value …]

Read it from top to bottom; run it on a CPU, where a tiny model that can talk learns from reward alone when to ask. A step is:
1. play: a few games, each several times. The dialogues of one game are a *group*; each ends with a reward from 0 to 1.
2. compare: a dialogue's *advantage* is its reward less its group's mean.
3. learn: where that is above 0, the tokens that the model sampled become more likely; below 0, less likely.

Left out, and found in `slim-rl train`: held-out games, a log, checkpoints, several processes, adapters, other rewards (controls),
a learning rate that falls, batches without padding. Its gradient is this page's: TRL gives the same for the same dialogues.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from copy import deepcopy
from statistics import fmean, stdev
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from slim_rl import Dialogue, RolloutWorker, load_config, load_rows, measures
from slim_rl.config import Config
from slim_rl.dialogue.failures import Failures
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import annotate
from slim_rl.errors import SlimError
from slim_rl.policies.transformers import TransformersPolicy, load_policy


def play(worker: RolloutWorker, policy: TransformersPolicy, games: list[GameRow], step: int) -> list[list[Dialogue]]:
    """Plays one group per game; dialogues of a group differ because the policy samples its messages."""
    size = worker.config.train.group_size
    policy.reseed(worker.config.seed + step)  # and have it forget what it computed with older weights
    specs = [worker.spec(game, str(step), number, step=step) for game in games for number in range(size)]
    played = [dialogue for (dialogue,) in asyncio.run(worker.play_all(specs, done=annotate))]
    return [played[start : start + size] for start in range(0, len(played), size)]


def advantages(rewards: Sequence[float | None], scale: bool) -> list[float]:
    """Returns each reward minus its group's mean; with `scale`, in the group's standard deviations.

    Games differ: 0.8 is high if the others got 0.6, and low if they got 1, so the group's mean is the baseline. A failed dialogue (None; for
    example, the partner's server was down) says nothing about the policy: it is in no mean and has advantage 0.
    """
    played = [reward for reward in rewards if reward is not None]
    mean = fmean(played) if played else 0.0
    unit = stdev(played) + 1e-4 if scale and len(played) > 1 else 1.0
    return [0.0 if reward is None else (reward - mean) / unit for reward in rewards]


class Batch(NamedTuple):
    """Batch with one row per dialogue and one column per token, padded on the right."""

    ids: Tensor  # what the model reads: the prompt, its own turns and the partner's
    labels: Tensor  # the token that came next
    weights: Tensor  # what that one counts in the loss: 0 unless the policy sampled it
    advantages: Tensor  # of the dialogue: one column


def make_batch(groups: list[list[Dialogue]], config: Config) -> Batch:
    """Returns the completed dialogues as tensors."""
    rows: list[tuple[Dialogue, float]] = []
    for group in groups:
        compared = advantages([dialogue.reward for dialogue in group], config.train.scale_rewards)
        rows += [pair for pair in zip(group, compared, strict=True) if not pair[0].failed]
    ids = pad_sequence([torch.tensor(d.prompt_ids + d.response_ids) for d, _ in rows], batch_first=True)
    mask = pad_sequence([torch.tensor([0] * len(d.prompt_ids) + d.loss_mask) for d, _ in rows], batch_first=True)
    counts = weights(mask[:, 1:], sum(map(len, groups)), config)
    return Batch(ids[:, :-1], ids[:, 1:], counts, torch.tensor([[advantage] for _, advantage in rows]))


def weights(mask: Tensor, dialogues: int, config: Config) -> Tensor:
    """What each token counts. Those of the prompt and the partner (mask 0) count nothing: the policy reads them, but chose none of
    them. `dialogues` are those that failed, too, so that a step with failures is a smaller one.
    """
    if config.train.loss == "sequence":  # every dialogue counts the same, so a token of a short one counts more
        return mask / mask.sum(1, keepdim=True).clamp(min=1) / dialogues
    if config.train.loss == "constant":  # divided by what no dialogue changes by its length (Dr. GRPO)
        return mask / (config.limits.dialogue_tokens or config.limits.context_tokens or 4096) / dialogues
    return mask / mask.sum().clamp(min=1)  # every token counts the same


def logprobs(model: Any, batch: Batch, temperature: float) -> Tensor:
    """Returns the log probability of each label given all tokens before it."""
    logits = model(input_ids=batch.ids, use_cache=False).logits / temperature
    return torch.gather(logits.log_softmax(-1), 2, batch.labels[..., None])[..., 0]


def loss(model: Any, reference: Any, batch: Batch, config: Config, old: Tensor | None = None) -> Tensor:
    """GRPO's loss. `reference`: the model before the first step; `old`: log p when it was played, if other than now."""
    train, new = config.train, logprobs(model, batch, config.policy.temperature)
    # The ratio: how much more likely a token is now than when it was played. Here every dialogue is learned from once, so it is 1,
    # and its gradient that of log p. Several updates on the same dialogues need the clip: once a good token is 1.2 times as likely
    # (clip_ratio 0.2), or a bad one 0.8 times, nothing is gained by going further.
    ratio = (new - (new.detach() if old is None else old)).exp()
    clipped = ratio.clamp(1 - train.clip_ratio, 1 + train.clip_ratio)
    gain = torch.min(ratio * batch.advantages, clipped * batch.advantages)
    if train.kl_coef:
        # The KL: a pull towards the initial policy, which preserves what no reward tests, such as the plan format. e^d - d - 1
        # is 0 where both models agree and above it elsewhere; its mean over sampled tokens is their KL divergence ("k3"). The
        # ratio stands before it because the model also decides which tokens are sampled, and the gradient must know.
        with torch.no_grad():
            start = logprobs(reference, batch, config.policy.temperature)
        gain = gain - train.kl_coef * ratio * ((start - new).exp() - (start - new) - 1)
    return -(gain * batch.weights).sum()


def update(model: Any, reference: Any, optimizer: Any, batch: Batch, config: Config) -> tuple[float, float]:
    """Makes one optimizer step, in micro-batches to save memory. Returns the loss and the gradient's norm."""
    total = 0.0
    optimizer.zero_grad()
    for rows in torch.arange(len(batch.ids)).split(config.train.micro_batch):
        part = loss(model, reference, Batch(*(tensor[rows].to(model.device) for tensor in batch)), config)
        part.backward()
        total += part.item()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.train.max_grad_norm)
    optimizer.step()
    return total, norm.item()


def train(config: Config, steps: int) -> Iterator[str]:
    """Trains, and yields one line per step. Raises SlimError if too many dialogues failed."""
    (policy, chat), rows, count = load_policy(config.policy), load_rows(config), config.train.games_per_step
    worker, model, reference = RolloutWorker(config, chat, policy), policy.model, deepcopy(policy.model)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        begin = perf_counter()
        groups = play(worker, policy, [rows[(step * count + i) % len(rows)] for i in range(count)], step)
        Failures(dialogue for group in groups for dialogue in group).check(config)
        warm = min(1.0, (step + 1) / (config.train.warmup_steps + 1))  # Adam's first steps are as large as its noise
        optimizer.param_groups[0]["lr"] = warm * config.train.learning_rate
        value, norm = update(model, reference, optimizer, make_batch(groups, config), config)
        found = [measures(dialogue) for group in groups for dialogue in group if not dialogue.failed]
        reward, asked = (fmean(float(one[name]) for one in found) for name in ("reward", "questions"))
        learned = f"loss {value:+.4f}, gradient {norm:.4f}, {perf_counter() - begin:.1f} s"
        yield f"step {step + 1}: reward {reward:.3f}, questions {asked:.2f}, {learned}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options = parser.parse_args()
    try:
        for line in train(load_config("configs/matching_local.yaml", options.overrides), options.steps):
            print(line, flush=True)
    except SlimError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
