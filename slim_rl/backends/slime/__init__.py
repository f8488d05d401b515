"""slime: dialogues as its samples, and its launch. `slim_rl.rollout` names the hook's functions for slime's command line.

context   shared by all dialogues of a process: config, tokenizer boundaries, partner
policy    the policy over slime's engines
hook      `generate`: one dialogue, one sample (two under self-play)
rewards   baselines and the group filter, without failed games
log       dialogue log and metrics for trackers

launch    `slim-rl train` with slime, by scripts/run_matching.sh
flags     slime's flags that depend on the config
job       the Ray job's environment
driver    slime's training script, in the job
export    its checkpoints as models
"""

RECORD = "dialogue"  # key of sample.metadata under which a dialogue's record stands
