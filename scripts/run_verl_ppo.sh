#!/usr/bin/env bash
# PPO (or GRPO, REINFORCE++, ...) on the matching game, by verl: configs/verl_ppo.yaml on one GPU.
#
#   scripts/run_verl_ppo.sh --dry-run                              check and print what verl would be given; needs no GPU
#   POLICY_MODEL=Qwen/Qwen3-4B scripts/run_verl_ppo.sh --set train.steps=50 actor_rollout_ref.rollout.gpu_memory_utilization=0.6
#
# --set key=value changes a key of the config, a bare key=value one of verl's own. From the environment: POLICY_MODEL, REF_MODEL,
# CRITIC_MODEL, CONFIG, PYTHON.
exec "${PYTHON:-python3}" -m slim_rl train "${CONFIG:-configs/verl_ppo.yaml}" --backend verl "$@"
