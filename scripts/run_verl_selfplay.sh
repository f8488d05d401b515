#!/usr/bin/env bash
# Self-play GRPO on the matching game, by verl: the policy plays both seats and learns from each seat's view.
#
#   scripts/run_verl_selfplay.sh                                        one GPU, configs/verl_selfplay.yaml
#   scripts/run_verl_selfplay.sh --dry-run                              check and print what verl would be given; needs no GPU
#   POLICY_MODEL=Qwen/Qwen3-4B scripts/run_verl_selfplay.sh --set train.steps=50 actor_rollout_ref.rollout.gpu_memory_utilization=0.6
#
# --set key=value changes a key of the config, a bare key=value one of verl's own. From the environment: POLICY_MODEL, REF_MODEL, CRITIC_MODEL, CONFIG, PYTHON.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. scripts/find_python.sh
exec "$PYTHON" -m slim_rl train "${CONFIG:-configs/verl_selfplay.yaml}" --backend verl "$@"
