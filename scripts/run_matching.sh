#!/usr/bin/env bash
# Trains a policy on the matching game with slime (GRPO), on one node or several. docs/how-to/slime-launch.md walks through it.
#
#   MODEL=Qwen/Qwen3-4B scripts/run_matching.sh                  one node, all its GPUs
#   scripts/run_matching.sh --model DIR --partner shy --dry-run  print the command; needs neither slime nor a GPU
#   scripts/run_matching.sh --model DIR --lr 2e-6                any flag of slime's wins over the one set here
#   scripts/run_matching.sh --help                               the settings: each is a variable (NUM_GPUS=4) or a flag
#
# The same as: slim-rl train configs/matching.yaml --backend slime -- ...
# Besides the settings: PYTHON (python3, or .venv's), ROUTER_POLICY, RAY_ADDRESS (a cluster to join), RAY_PORT, MASTER_ADDR, and W&B's own
# WANDB_API_KEY (switches it on), WANDB_PROJECT, WANDB_GROUP, WANDB_MODE, WANDB_BASE_URL.
set -euo pipefail

repository=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
. "$repository/scripts/find_python.sh"
export PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}"
export CONFIG=${CONFIG:-$repository/configs/matching.yaml}
exec "$PYTHON" -m slim_rl.backends.slime.launch "$@"
