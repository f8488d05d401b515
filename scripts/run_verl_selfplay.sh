#!/usr/bin/env bash
# Self-play GRPO on the matching game, by verl: the policy plays both seats and learns from each seat's view. As run_verl_ppo.sh.
CONFIG=${CONFIG:-configs/verl_selfplay.yaml} exec "$(dirname -- "${BASH_SOURCE[0]}")/run_verl_ppo.sh" "$@"
