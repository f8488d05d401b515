#!/usr/bin/env bash
# The first ten minutes on a GPU node as one command: 3 steps with a 0.6B model and the scripted shy partner, stopped at the first
# checkpoint and resumed, exported, and 50 held-out games; at the end a table of what was measured. No key, no cost.
#
#   scripts/smoke_cluster.sh                                     into runs/smoke-DATE
#   SMOKE_DIR=/shared/smoke MODEL=Qwen/Qwen3-4B NUM_GPUS=4 scripts/smoke_cluster.sh
#
# Variables and slime's flags are those of scripts/run_matching.sh, which it runs. Also ENGINE (sglang, vllm or transformers plays the
# exported model), GAMES (50), CONFIG (configs/matching_offline.yaml) and PYTHON (python3, or .venv's).
set -euo pipefail
case ${1:-} in -h | --help) sed -n '/^set/q; s/^#!.*//; s/^# \{0,1\}//p' "$0" && exit ;; esac

repository=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
. "$repository/scripts/find_python.sh"
export PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}"
export CONFIG=${CONFIG:-$repository/configs/matching_offline.yaml} MODEL=${MODEL:-Qwen/Qwen3-0.6B}
exec "$PYTHON" -m slim_rl.backends.slime.smoke "${SMOKE_DIR:-runs/smoke-$(date +%Y%m%d-%H%M%S)}" "$@"
