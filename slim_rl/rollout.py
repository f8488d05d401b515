"""Dotted paths for slime's command line.

--custom-generate-function-path slim_rl.rollout.generate
--dynamic-sampling-filter-path slim_rl.rollout.keep_usable_groups
--custom-reward-post-process-path slim_rl.rollout.normalize_rewards
--custom-rollout-log-function-path slim_rl.rollout.log_rollout
--custom-eval-rollout-log-function-path slim_rl.rollout.log_eval_rollout
--custom-config-path configs/matching.yaml
--custom-advantage-function-path slim_rl.rollout.use_turn_advantages    (only if train.reward gives turns their own)
--rollout-function-path slim_rl.rollout.generate_fully_async    (only to play while training; otherwise slime's own)
"""

from slim_rl.backends.slime.credit import use_turn_advantages
from slim_rl.backends.slime.fully_async import generate_fully_async
from slim_rl.backends.slime.hook import generate
from slim_rl.backends.slime.metrics import log_eval_rollout, log_rollout
from slim_rl.backends.slime.rewards import keep_usable_groups, normalize_rewards

__all__ = [
    "generate",
    "generate_fully_async",
    "keep_usable_groups",
    "log_eval_rollout",
    "log_rollout",
    "normalize_rewards",
    "use_turn_advantages",
]
