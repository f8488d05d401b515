"""Dotted paths for slime's command line.

--custom-generate-function-path slim_rl.rollout.generate
--rollout-sample-filter-path slim_rl.rollout.keep_usable_groups
--custom-reward-post-process-path slim_rl.rollout.normalize_rewards
--custom-rollout-log-function-path slim_rl.rollout.log_rollout
--custom-eval-rollout-log-function-path slim_rl.rollout.log_eval_rollout
--custom-config-path configs/matching.yaml
--custom-advantage-function-path slim_rl.rollout.use_turn_advantages    (only if train.reward gives turns their own)
"""

from slim_rl.backends.slime.hook import generate as generate
from slim_rl.backends.slime.log import log_eval_rollout as log_eval_rollout
from slim_rl.backends.slime.log import log_rollout as log_rollout
from slim_rl.backends.slime.rewards import keep_usable_groups as keep_usable_groups
from slim_rl.backends.slime.rewards import normalize_rewards as normalize_rewards
from slim_rl.backends.slime.rewards import use_turn_advantages as use_turn_advantages
