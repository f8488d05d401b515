#!/bin/bash
# Trains a policy on the matching game with slime (GRPO), on one node or several. docs/how-to/slime-launch.md walks through it.
#
#   MODEL=Qwen/Qwen3-4B scripts/run_matching.sh                   one node, all its GPUs
#   MODEL=... scripts/run_matching.sh --set partner.kind=shy      --set changes a key of the config (repeatable)
#   MODEL=... scripts/run_matching.sh --lr 2e-6                   a flag of slime's: it comes last, so it wins
#   MODEL=... scripts/run_matching.sh --dry-run                   print the command; needs neither slime nor a GPU
#
# Variables, with their defaults:
#   MODEL                       a Hugging Face checkpoint folder, or a name on the hub; by default the config's policy.model
#   MODEL_SCRIPT                MODEL's architecture: a file such as slime's scripts/models/qwen3-4B.sh (found by MODEL's name)
#   TORCH_DIST                  MODEL in Megatron's format, for the families that slime cannot read directly
#   CONFIG                      configs/matching.yaml
#   SAVE_DIR                    runs/CONFIG-MODEL, the run's folder: the same command resumes from its last checkpoint
#   NUM_NODES, NUM_GPUS         1, and the GPUs per node that nvidia-smi lists
#   TP, ENGINE_GPUS             1 and 1: GPUs per copy of the training weights, and per SGLang engine
#   ASYNC                       0: play, then train; 1: play the next step's games while training
#   COLOCATE, ROLLOUT_GPUS      1: training and inference take turns on all GPUs (0 with ASYNC); 0: ROLLOUT_GPUS (half) play
#   SLIME_DIR, MEGATRON_DIR     found from their Python packages, Megatron-LM also beside slime
#   RAY_ADDRESS                 a Ray cluster to join; otherwise one that runs here, or a head started at MASTER_ADDR:RAY_PORT
#   PYTHON, ROUTER_POLICY, and W&B's own variables (WANDB_API_KEY switches it on)
set -euo pipefail

die() {
    echo "slim-rl: $1" >&2
    exit 1
}
REPOSITORY=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$REPOSITORY${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

DRY_RUN=() SETS=() OWN_ARGS=()
while (($#)); do
    case $1 in
    -h | --help) sed -n '/^set/q; s/^#!.*//; s/^# \{0,1\}//p' "$0" && exit ;;
    --dry-run) DRY_RUN=(--dry-run) ;;
    --set=*) SETS+=("$1") ;;
    --set)
        (($# > 1)) || die "--set has no value: give --set KEY=VALUE, such as --set partner.kind=shy."
        SETS+=("--set=$2") && shift
        ;;
    *) OWN_ARGS+=("$1") ;;
    esac
    shift
done

CONFIG=${CONFIG:-$REPOSITORY/configs/matching.yaml}
MODEL=${MODEL:-$("$PYTHON" -P -c 'import sys, slim_rl; print(slim_rl.load_config(sys.argv[1], sys.argv[2:]).policy.model)' \
    "$CONFIG" "${SETS[@]#--set=}" 2>/dev/null || true)}
[[ $MODEL ]] || exec "$PYTHON" -P -m slim_rl train "$CONFIG" --backend slime --print-flags --dry-run "${SETS[@]}" # says what is wrong
SAVE_DIR=$(realpath -ms "${SAVE_DIR:-runs/$(basename "$CONFIG" .yaml)-$(basename "$MODEL")}")
export MODEL SAVE_DIR

# ------------------------------------------------------------------------------------------------------------------ GPUs
if [[ ! ${NUM_GPUS:-} ]]; then
    NUM_GPUS=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU) || NUM_GPUS=8 # for a dry run without a GPU
fi
NUM_NODES=${NUM_NODES:-1} TP=${TP:-1} ENGINE_GPUS=${ENGINE_GPUS:-1} RAY_PORT=${RAY_PORT:-6379} ASYNC=${ASYNC:-0}
COLOCATE=${COLOCATE:-$([[ $ASYNC == 0 ]] && echo 1 || echo 0)}
for name in NUM_NODES NUM_GPUS TP ENGINE_GPUS RAY_PORT ${ROLLOUT_GPUS:+ROLLOUT_GPUS}; do # before the shell computes with them
    [[ ${!name} =~ ^[1-9][0-9]{0,4}$ ]] || die "$name is '${!name}'; it must be a whole number of at least 1."
done
case $ASYNC$COLOCATE in
01)
    [[ ! ${ROLLOUT_GPUS:-} ]] || die "ROLLOUT_GPUS is set, but training and playing share all GPUs: set COLOCATE=0 too, or leave it out."
    GPU_ARGS=(--colocate --actor-num-nodes "$NUM_NODES" --actor-num-gpus-per-node "$NUM_GPUS")
    ;;
00 | 10)
    ROLLOUT_GPUS=${ROLLOUT_GPUS:-$((NUM_NODES * NUM_GPUS / 2))}
    ((LEFT = NUM_NODES * NUM_GPUS - ROLLOUT_GPUS, ACTOR_NODES = LEFT < NUM_GPUS ? 1 : LEFT / NUM_GPUS))
    ((ROLLOUT_GPUS > 0 && LEFT > 0 && LEFT % ACTOR_NODES == 0 && LEFT / ACTOR_NODES <= NUM_GPUS)) || die "ROLLOUT_GPUS=$ROLLOUT_GPUS \
leaves $LEFT of $((NUM_NODES * NUM_GPUS)) GPUs for training, which takes whole nodes of $NUM_GPUS or a part of one. Choose another."
    GPU_ARGS=(--actor-num-nodes "$ACTOR_NODES" --actor-num-gpus-per-node $((LEFT / ACTOR_NODES)) --rollout-num-gpus "$ROLLOUT_GPUS")
    ;;
11) die "ASYNC=1 plays while it trains and cannot share GPUs: set COLOCATE=0." ;;
*) die "ASYNC is '$ASYNC' and COLOCATE '$COLOCATE'; each must be 0 or 1." ;;
esac
GPU_ARGS+=(--num-gpus-per-node "$NUM_GPUS")

# ----------------------------------------------------------------------------------------------------------------- flags
SLIME_DIR=${SLIME_DIR:-$("$PYTHON" -P -m slim_rl.backends.slime.job)}
export SLIME_DIR
MODEL_ARGS=()
if [[ -f $SLIME_DIR/train.py ]]; then
    name=$(basename "$MODEL") && name=${name/#Qwen/qwen} && name=${name/#Llama-/llama}
    scripts=$SLIME_DIR/scripts/models
    for script in "${MODEL_SCRIPT:-$scripts/$name.sh}" "${MODEL_SCRIPT:-$scripts/${name%-Instruct}.sh}"; do
        [[ ! -f $script ]] || break
    done
    if [[ ! -f $script ]]; then
        near=$("$PYTHON" -c 'import difflib, os, sys; print(*difflib.get_close_matches(sys.argv[1], os.listdir(sys.argv[2]), 1))' "$name.sh" "$scripts")
        die "$script does not exist. Set MODEL_SCRIPT to the script of MODEL's architecture, such as $scripts/${near:-...}."
    fi
    source "$script"
elif [[ $SLIME_DIR || ! ${DRY_RUN[*]} ]]; then
    die "slime is not found: set SLIME_DIR to its checkout, the folder that has train.py."
fi

CKPT_ARGS=(
    --load "$SAVE_DIR"
    --save "$SAVE_DIR"
)
# Megatron refuses to resume with other steps or another learning rate unless told that they are meant
if [[ -e $SAVE_DIR/latest_checkpointed_iteration.txt ]]; then CKPT_ARGS+=(--override-opt-param-scheduler); fi

ROLLOUT_ARGS=(
    --custom-generate-function-path slim_rl.rollout.generate # plays a dialogue
    --input-key prompt                                        # chat messages; the hook writes the template's tokens
    --metadata-key metadata                                   # holds the game
    --rollout-shuffle
    --balance-data       # dialogues differ in length, GPUs should not
    --use-fault-tolerance # restarts an engine that hangs, with the next weights; until then others sample its turns
    --rollout-sample-filter-path slim_rl.rollout.keep_usable_groups # of the games played, those to train on
    --custom-rollout-log-function-path slim_rl.rollout.log_rollout
    --custom-eval-rollout-log-function-path slim_rl.rollout.log_eval_rollout
)

GRPO_ARGS=(
    --advantage-estimator grpo
    --custom-reward-post-process-path slim_rl.rollout.normalize_rewards # baselines without failed games
    --entropy-coef 0.0
    --use-tis # SGLang samples and Megatron recomputes the logprobs: importance weights correct the difference
)

OPTIMIZER_ARGS=(
    --optimizer adam
    # --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d --use-precision-aware-optimizer   # Adam's states on the host
)

PERF_ARGS=(
    --tensor-model-parallel-size "$TP"
    --pipeline-model-parallel-size 1
    --context-parallel-size 1
    --recompute-granularity full # dialogues are long, and memory limits the batch
    --recompute-method uniform
    --recompute-num-layers 1
    --use-dynamic-batch-size
)
if [[ $TP != 1 ]]; then PERF_ARGS+=(--sequence-parallel); fi

SGLANG_ARGS=(
    --rollout-num-gpus-per-engine "$ENGINE_GPUS"
    --sglang-mem-fraction-static $([[ $COLOCATE == 1 ]] && echo 0.7 || echo 0.85) # colocated, Megatron keeps a part
)

MISC_ARGS=(
    --attention-dropout 0.0 # Megatron's default of 0.1 would make training differ from sampling
    --hidden-dropout 0.0
    --accumulate-allreduce-grads-in-fp32
    --attention-softmax-in-fp32
    --attention-backend flash
)

# What depends on the config, one flag per line. This checks everything first; then it writes SAVE_DIR/config.yaml and missing games.
config_flags=$("$PYTHON" -P -m slim_rl train "$CONFIG" --backend slime --print-flags "${DRY_RUN[@]}" "${SETS[@]}" -- "${OWN_ARGS[@]}")
[[ $config_flags ]] || exit 0 # trained
config_words=$(xargs printf '%s\n' <<<"$config_flags")
mapfile -t CONFIG_ARGS <<<"$config_words"

ENTRY=${SLIME_DIR:-\$SLIME_DIR}/$([[ $ASYNC == 0 ]] && echo train.py || echo train_async.py)
COMMAND=(
    "$PYTHON" -P -m slim_rl.backends.slime.driver "$ENTRY" # slime's script, with checks around it
    "${GPU_ARGS[@]}"
    "${MODEL_ARGS[@]}"
    "${CKPT_ARGS[@]}"
    "${ROLLOUT_ARGS[@]}"
    "${GRPO_ARGS[@]}"
    "${OPTIMIZER_ARGS[@]}"
    "${PERF_ARGS[@]}"
    "${SGLANG_ARGS[@]}"
    "${MISC_ARGS[@]}"
    "${CONFIG_ARGS[@]}"
    "${OWN_ARGS[@]}"
)
if [[ ${DRY_RUN[*]} ]]; then # one flag per line
    [[ $SLIME_DIR ]] || echo "# slime is not found here: set SLIME_DIR to add the flags of the model's architecture, and to check yours"
    [[ ! $SLIME_DIR ]] || echo "# values of flags, and the flags of Megatron-LM and SGLang, are checked when the job starts"
    printf '%q ' "${COMMAND[@]}" | sed 's/\([^\\]\) --/\1 \\\n    --/g; s/ $//'
    echo
    exit
fi

# ------------------------------------------------------------------------------------------------------------------- Ray
command -v ray >/dev/null || die "Ray is not installed: use slime's container, or pip install 'ray[default]'."
RUNTIME_ENV=$(mktemp --suffix=.json) # keys travel in a file of mode 0600: any user can read a command line
JOB=$(basename "$SAVE_DIR")-$(date +%Y%m%d-%H%M%S)-$$ FOLLOWER='' HEAD=''
finish() { # stops what was started here, in order; other jobs and clusters keep running
    local code=$?
    trap '' INT TERM HUP
    if [[ $FOLLOWER ]]; then
        echo "slim-rl: stopping the job $JOB; the same command resumes it." >&2
        timeout 60 ray job stop "$JOB" &>/dev/null || true
        kill "$FOLLOWER" 2>/dev/null && wait "$FOLLOWER" || true
    fi
    if [[ $HEAD ]]; then kill "$HEAD" 2>/dev/null && wait "$HEAD" || true; fi
    rm -f "$RUNTIME_ENV"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-$([[ $(nvidia-smi topo -m 2>/dev/null) =~ NV[0-9] ]] && echo 1 || echo 0)}
"$PYTHON" -P -m slim_rl.backends.slime.job "$SAVE_DIR/config.yaml" >"$RUNTIME_ENV"

if [[ ${RAY_ADDRESS:-} ]]; then
    echo "slim-rl: joining the Ray cluster at $RAY_ADDRESS" >&2
elif timeout 60 ray status &>/dev/null; then
    echo "slim-rl: using the Ray cluster that runs on this machine" >&2
    export RAY_ADDRESS=auto
else
    if ((NUM_NODES > 1)); then MASTER_ADDR=${MASTER_ADDR:-$(hostname -I | cut -d' ' -f1)}; fi
    MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
    ray start --head --block --node-ip-address "$MASTER_ADDR" --port "$RAY_PORT" --num-gpus "$NUM_GPUS" \
        --dashboard-agent-listen-port 0 --disable-usage-stats &>"$SAVE_DIR/ray.log" &
    HEAD=$! SECONDS=0
    export RAY_ADDRESS=$MASTER_ADDR:$RAY_PORT
    until timeout 60 ray job submit --no-wait -- true &>/dev/null; do # it takes jobs last
        kill -0 "$HEAD" 2>/dev/null || { HEAD='' && die "Ray's head did not start; see $SAVE_DIR/ray.log."; }
        ((SECONDS < 300)) || die "Ray's head accepts no jobs (is ray[default] installed?); see $SAVE_DIR/ray.log."
        sleep 1
    done
    ((NUM_NODES == 1)) || echo "slim-rl: on each of the other $((NUM_NODES - 1)) nodes run now: \
ray start --address=$RAY_ADDRESS --num-gpus=$NUM_GPUS --block" >&2
fi

echo "slim-rl: starting the job $JOB; everything is in $SAVE_DIR" >&2
ray job submit --submission-id "$JOB" --runtime-env "$RUNTIME_ENV" -- "${COMMAND[@]}" &
FOLLOWER=$!
code=0
wait "$FOLLOWER" || code=$?
FOLLOWER=''
[[ $code != 0 || $(timeout 60 ray job status "$JOB" 2>&1) =~ succeeded|SUCCEEDED ]] || code=1 # a stopped job's follower ends well
exit "$code"
