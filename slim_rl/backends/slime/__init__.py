"""The slime hook: dialogues as slime's samples. `slim_rl.rollout` names its functions for slime's command line.

setup    what all dialogues of a process share: config, tokenizer boundaries, partner
policy   the policy over slime's own HTTP client, filling slime's `Sample`
hook     `generate`: one dialogue, one sample (under self-play two)
rewards  baselines and the group filter, blind to failed games
metrics  the dialogue log and what W&B and TensorBoard are told
"""
