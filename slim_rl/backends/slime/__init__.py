"""The slime hook: dialogues as slime's samples. `slim_rl.rollout` names its functions for slime's command line.

setup         shared by all dialogues of a process: config, tokenizer boundaries, partner
policy        the policy over slime's HTTP client
hook          `generate`: one dialogue, one sample (two under self-play)
rewards       baselines and the group filter, without failed games
metrics       dialogue log and metrics for trackers
fully_async   rollouts that do not wait for their slowest game

launch        `slim-rl train` with slime, by scripts/run_matching.sh
flags         slime's flags that depend on the config
checkouts     slime's and Megatron-LM's folders, and the job's environment
driver        slime's training script with checks around it, in the job
"""

UNPLAYABLE = {  # flag of slime -> the reason why a dialogue cannot be played with it, and what to do
    "--partial-rollout": "a dialogue that slime aborts is played again from its first turn; leave it out",
    "--group-rm": "slime would overwrite the games' rewards with those of a reward model; leave it out",
}
