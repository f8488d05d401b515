"""Training rewards (`dialogue.training_reward`), group baselines and the group filter on slime. Failed games affect none of them.

A failed game is in no group's mean or deviation, its advantage is 0, and a group with too few played games is dropped. In self-play each
seat's dialogue counts as one in the loss, as under the other trainers.
"""

from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from slime.utils.types import Sample

from slim_rl.backends.slime import RECORD
from slim_rl.backends.slime.context import config_of
from slim_rl.config import Config
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.training_reward import by_token, make_training_reward

_GROUPED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")  # estimators that slime compares within a group
_SCALED = ("grpo", "gspo", "cispo")
_SAME = 1e-6

# Samples of a rollout's dropped groups, until they are logged: slime filters and logs in one process
dropped: list[Sample] = []

# slime's batches carry little of a sample's own fields to the processes that train. This one list of a number per token is there for
# distillation, which nothing here uses; it is cut for context parallelism and moved to the GPU as logprobs are.
_CARRIED = "teacher_log_probs"


def normalize_rewards(args: Namespace, samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Returns raw and normalised training rewards, as slime's ``--custom-reward-post-process-path``.

    slime's own normalisation is applied to the played games of each group and seat. If the training reward gives turns their own advantages,
    the samples carry them from here on.

    Returns:
        (raw, normalised) training rewards, in the samples' order. The raw one of a failed game, which slime only averages for its
        metrics, is the mean of its group's played games, so that it moves no average; normalised it is 0.0.
    """
    config, dialogues = config_of(args), [dialogue_of(sample) for sample in samples]
    step = next((dialogue.step for dialogue in dialogues if dialogue.step is not None), 0)
    step_rewards = make_training_reward(config)(dialogues, step)
    if step_rewards.advantages is not None:
        for sample, dialogue, turns in zip(samples, dialogues, step_rewards.advantages, strict=True):
            setattr(sample, _CARRIED, by_token(dialogue, turns, sample.response_length))
    if config.selfplay:
        for sample in samples:
            sample.rollout_id = None  # slime, which wants one for both seats until here, now gives each its own
    groups: dict[str, list[int]] = defaultdict(list)
    for index, dialogue in enumerate(dialogues):
        groups[dialogue.group].append(index)
    grouped = args.advantage_estimator in _GROUPED and args.rewards_normalization
    scaled = args.advantage_estimator in _SCALED and args.grpo_std_normalization
    given = step_rewards.rewards
    all_played = [reward for reward in given if reward is not None]
    raw = [0.0 if reward is None else reward for reward in given]
    normalized = list(raw)
    for members in groups.values():
        played = [index for index in members if given[index] is not None]
        rewards = [raw[index] for index in played]
        mean = fmean(rewards or all_played or [0.0])
        spread = stdev(rewards) if scaled and len(rewards) > 1 else 0.0  # of a sample (n - 1), as slime has it
        for index in members:
            if given[index] is None:
                raw[index] = mean
            elif grouped:
                normalized[index] = (raw[index] - mean) / (spread + 1e-6 if scaled else 1.0)
    return raw, normalized


def use_turn_advantages(args: Namespace, rollout_data: dict[str, Any]) -> None:
    """slime's ``--custom-advantage-function-path``, where the training reward gives turns their own advantages."""
    rollout_data["advantages"] = rollout_data["returns"] = rollout_data.pop(_CARRIED)


def keep_usable_groups(args: Namespace, groups: list[Any]) -> None:
    """Leaves the groups that a step trains on in a rollout's list, as slime's ``--rollout-sample-filter-path``.

    Groups beyond `train.games_per_step` are dropped: first those of which too few games were played (`slime.min_survivors`), then, by
    config, those whose rewards are all equal, then those drawn last. Every group has been played to its end. slime's dynamic sampling
    would keep those that end first: in dialogues, those with the fewest questions. In a group that is kept, failed games are masked, and
    excluded from the group's mean and standard deviation. Dropped groups are logged too (`log_rollout`).
    """
    config = config_of(args)
    groups.sort(key=lambda group: _flaw(config, group))
    dropped[:] = flat(groups[config.train.games_per_step :])
    del groups[config.train.games_per_step :]


def _flaw(config: Config, samples: Sequence[Any]) -> int:
    """Returns 2 for a group with too few played games, 1 for equal rewards if these are dropped, otherwise 0."""
    dialogues, training_reward = list(map(dialogue_of, flat(samples))), make_training_reward(config)
    rewards = [reward for each in dialogues if (reward := training_reward.reward(each)) is not None]
    if not rewards or len(rewards) < config.slime.min_survivors * len(dialogues):
        return 2
    # turns may differ in what they teach where dialogues do not
    drop_equal = config.slime.drop_equal_rewards and not training_reward.by_turn
    return int(drop_equal and max(rewards) - min(rewards) < _SAME)


def flat(samples: Iterable[Any]) -> Iterable[Sample]:
    """Yields the samples in however deep lists."""
    for sample in samples:
        if isinstance(sample, list):
            yield from flat(sample)
        else:
            yield sample


def dialogue_of(sample: Sample) -> Dialogue:
    """Returns the record of a sample's dialogue, with its tokens.

    Annotates it if slime cancelled the game before that was done.
    """
    dialogue = Dialogue.from_dict(sample.metadata[RECORD])
    if not dialogue.response_ids and dialogue.tokens:  # they are the sample's
        at = len(sample.tokens) - sample.response_length
        dialogue.prompt_ids, dialogue.response_ids = sample.tokens[:at], sample.tokens[at:]
        dialogue.loss_mask, dialogue.logprobs = list(sample.loss_mask or ()), list(sample.rollout_log_probs or ())
    annotate(dialogue, again=False)
    return dialogue
