"""What a dialogue is paid, for every trainer alike: the game's reward, unless `train.reward` and `train.question_price` say otherwise.

    the log keeps the game's reward, whatever is paid
    a failed dialogue is paid nothing at all (None), which keeps it out of its group's baseline
    the same dialogues, in the same order and step, are paid the same by any trainer and in any process

Whose tokens have it is said in `credit`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from slim_rl.config import Config, TrainConfig
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.seeds import seed_of


def payments(dialogues: Sequence[Dialogue], config: Config, step: int) -> list[float | None]:
    """What the annotated dialogues of a step are paid, in their order; None for each that failed."""
    train = config.train
    paid = [payment(dialogue, train) for dialogue in dialogues]
    if not shuffles(train):
        return paid
    groups = [dialogue.group for dialogue in dialogues]
    return shuffled(paid, groups, seed_of(config.seed, "shuffle", step), zeros=train.reward == "shuffled_all")


def payment(dialogue: Dialogue, train: TrainConfig) -> float | None:
    """What an annotated dialogue is paid, before any shuffling; None if it failed."""
    if dialogue.reward is None:
        return None
    reward = dialogue.reward
    if train.reward == "agreed":
        reward = float(dialogue.stop_reason in (StopReason.AGREED, StopReason.FINISHED))
    if price := price_of(train, dialogue.game_id):
        reward -= price * float(measures(dialogue)["questions"])
    return reward


def price_of(train: TrainConfig, game_id: str) -> float:
    """What a question costs in a game: of several prices the one that is drawn for this game, in every run and process the same."""
    prices = train.question_price
    return prices[seed_of("price", game_id) % len(prices)] if isinstance(prices, tuple) else prices


def told_price(train: TrainConfig, game_id: str) -> float | None:
    """What a question costs in a game if the policy is told: where prices are drawn."""
    return price_of(train, game_id) if isinstance(train.question_price, tuple) else None


def price_sentence(price: float) -> str:
    """What the policy is told of it, with what it is dealt."""
    return f"Each question costs {100 * price:g}% of the highest reward."


def pays_otherwise(train: TrainConfig) -> bool:
    """Whether a dialogue is paid something else than its game's reward, or another's of its group."""
    return train.reward == "agreed" or bool(np.any(train.question_price))


def shuffles(train: TrainConfig) -> bool:
    """Whether what a dialogue is paid depends on the others of its step."""
    return train.reward in ("shuffled", "shuffled_all")


def takes_the_step(config: Config) -> bool:
    """Whether a trainer that compares a game's dialogues by itself must be told, once all of a step are played, what each is paid and
    what with it is compared: not only where rewards are shuffled, but also where turns or the seats of a game differ in theirs.
    """
    train = config.train
    return shuffles(train) or train.by_turn or (config.selfplay and pays_otherwise(train))


def shuffled(
    rewards: Sequence[float | None], groups: Sequence[str], seed: int, zeros: bool = False
) -> list[float | None]:
    """Rewards permuted among the rows of the same group. Failed rows stay so, and rows without any reward unless `zeros`.

    A game that ended without agreement keeps its 0, so that the arm still learns to play by the rules: were errors to go unpunished, the
    policy would fall apart within a few steps, and there would be nothing to compare. What is taken away is that a better plan
    pays more. With `zeros` that is taken away too, which wants something else to hold the policy, such as `train.kl_coef`.
    """
    draws = np.random.RandomState(seed)
    result = list(rewards)
    rows: dict[str, list[int]] = defaultdict(list)
    for index, (group, reward) in enumerate(zip(groups, rewards, strict=True)):
        if reward or (zeros and reward is not None):
            rows[group].append(index)
    for indices in rows.values():
        for target, source in zip(indices, permutation(len(indices), draws), strict=True):
            result[target] = rewards[indices[source]]
    return result


def permutation(size: int, draws: np.random.RandomState) -> list[int]:
    """The numbers below `size` in a random order: that of `torch.randperm` for a generator of the same seed, by which the published
    runs were shuffled.
    """
    order = list(range(size))
    for first in range(size - 1):
        other = first + int(draws.randint(2**32, dtype=np.uint32)) % (size - first)
        order[first], order[other] = order[other], order[first]
    return order
