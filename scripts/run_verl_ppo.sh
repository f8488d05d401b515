#!/usr/bin/env bash
# PPO (or GRPO, REINFORCE++, ...) on the matching game, by verl.
#
#   scripts/run_verl_ppo.sh                                        one GPU, configs/verl_ppo.yaml
#   scripts/run_verl_ppo.sh --dry-run                              check and print verl's command; needs no GPU
#   POLICY_MODEL=Qwen/Qwen3-4B scripts/run_verl_ppo.sh train.steps=50 actor_rollout_ref.rollout.gpu_memory_utilization=0.6
#
# Any key=value of the config or of verl's may follow. From the environment: POLICY_MODEL, REF_MODEL, CRITIC_MODEL, CONFIG, PYTHON.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-python}" -m slim_rl.backends.verl.launch "${CONFIG:-configs/verl_ppo.yaml}" "$@"
