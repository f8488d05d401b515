#!/usr/bin/env bash
# Trains a policy on the matching game with slime (GRPO), on one node or several. docs/cluster.md walks through it.
#
#   MODEL=Qwen/Qwen3-4B scripts/run_matching.sh                  one node, all its GPUs
#   scripts/run_matching.sh --model DIR --partner shy --dry-run  print the command; needs no GPU
#   scripts/run_matching.sh --model DIR --lr 2e-6                any flag of slime's wins over the one set here
#
# Each setting is a variable or a flag of the same name (NUM_GPUS=4 or --num-gpus 4); the flag wins.
#
#   MODEL         checkpoint folder, or a name on the hub. Needed.
#   CONFIG        the experiment (configs/matching.yaml); --set key=value changes a key, as often as you like
#   PARTNER       partner.kind of the config: openai, shy, forthcoming, mute, self (self-play)
#   DATA          games to train on;  EVAL_DATA  held-out games. Made when missing.
#   NUM_ROLLOUT   training steps in all (train.steps of the config)
#   SAVE_DIR      the run's folder: checkpoints, config, dialogues. Started again, a run goes on from its last checkpoint.
#   SAVE_INTERVAL, EVAL_INTERVAL   steps between checkpoints (train.save_every), and between evaluations (10; 0 for none)
#   NUM_GPUS      GPUs of a node (those nvidia-smi shows);  NUM_NODES  (1)
#   RAY_ADDRESS   a running Ray cluster to join. Without one, a head is started here, and stopped at the end.
#   TP            GPUs that share one copy of the training weights (by the model's size)
#   COLOCATE      1: training and inference take turns on all GPUs (usual). 0: each has its own;
#   ROLLOUT_GPUS  then so many GPUs in all go to inference (half)
#   ENGINE_GPUS   GPUs of one SGLang engine (by the model's size)
#   ASYNC         0: play, then train. 1: play the next step's games while training. full: games never wait for a step.
#   TORCH_DIST    the checkpoint in Megatron's format (MODEL_torch_dist), converted when missing
#   SLIME_DIR, MEGATRON_DIR   their checkouts (found from the Python packages);  PYTHON  (python3)
#   ROUTER_POLICY the SGLang router's (consistent_hashing where the router knows it)
#   WANDB_API_KEY switches W&B on; WANDB_PROJECT, WANDB_GROUP, WANDB_MODE, WANDB_BASE_URL as W&B has them
set -euo pipefail

HERE=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
REPOSITORY=$(dirname -- "$HERE")
PYTHON=${PYTHON:-python3}
[[ $PYTHON != */* ]] || PYTHON=$(cd -- "$(dirname -- "$PYTHON")" && pwd)/$(basename -- "$PYTHON")
export PYTHONPATH="$REPOSITORY${PYTHONPATH:+:$PYTHONPATH}"

say() { printf 'run_matching: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# ---------------------------------------------------------------------------------------------------------- settings
DRY_RUN=0
OVERRIDES=()   # of the config
PASSED=()      # slime's own flags, handed on
while (($#)); do
    flag=${1%%=*}
    case $flag in
    --model | --config | --partner | --data | --eval-data | --num-rollout | --save-dir | --save-interval | --eval-interval | \
        --num-gpus | --num-nodes | --tp | --rollout-gpus | --engine-gpus | --async | --torch-dist | --slime-dir | --megatron-dir | --set)
        if [[ $1 == *=* ]]; then value=${1#*=}; else
            if (($# == 1)) || [[ $2 == --* ]]; then die "$flag needs a value."; fi
            value=$2
            shift
        fi
        name=${flag#--}
        name=${name//-/_}
        if [[ $flag == --set ]]; then OVERRIDES+=("$value"); else printf -v "${name^^}" %s "$value"; fi
        ;;
    --colocate) COLOCATE=1 ;;
    --no-colocate) COLOCATE=0 ;;
    --dry-run) DRY_RUN=1 ;;
    -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    --hf-checkpoint | --save | --load | --ref-load | --prompt-data | --custom-config-path | --tensor-model-parallel-size)
        die "$flag is set from MODEL, SAVE_DIR, TORCH_DIST, DATA, CONFIG or TP; give that instead."
        ;;
    *) # slime's: this word and its values, up to the next flag
        [[ $1 == --* ]] || die "What is '$1'? Settings are NAME=value before the script, or flags after it; see --help."
        PASSED+=("$1")
        while (($# > 1)) && [[ $2 != --* ]]; do
            PASSED+=("$2")
            shift
        done
        ;;
    esac
    shift
done

[[ ${MODEL:-} ]] || die "MODEL is not set: give a checkpoint folder or a name on the hub, such as MODEL=Qwen/Qwen3-4B."
CONFIG=${CONFIG:-$REPOSITORY/configs/matching.yaml}
NUM_NODES=${NUM_NODES:-1}
ASYNC=${ASYNC:-0}
COLOCATE=${COLOCATE:-$([[ $ASYNC == 0 ]] && echo 1 || echo 0)}
EVAL_INTERVAL=${EVAL_INTERVAL:-10}
[[ $ASYNC =~ ^(0|1|full)$ ]] || die "ASYNC is '$ASYNC'; it is 0, 1 or full."
[[ $ASYNC == 0 || $COLOCATE == 0 ]] || die "ASYNC=$ASYNC plays while it trains and cannot share GPUs: use COLOCATE=0."

here_gpus() { # as many as nvidia-smi shows, or fewer where CUDA_VISIBLE_DEVICES says so
    if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
        tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c . || true
    else
        (nvidia-smi -L 2>/dev/null || true) | grep -c '^GPU' || true
    fi
}
GPUS_HERE=$(here_gpus)
if ((GPUS_HERE == 0 && !DRY_RUN)) && [[ ! ${RAY_ADDRESS:-} ]]; then
    die "this machine has no GPU, and slime trains on GPUs alone. For the whole loop on a CPU: make run. To see the" \
        "command that a cluster would run: --dry-run. To join a cluster from here: RAY_ADDRESS=http://HEAD:8265."
fi
NUM_GPUS=${NUM_GPUS:-$((GPUS_HERE > 0 ? GPUS_HERE : 8))}

TOTAL_GPUS=$((NUM_NODES * NUM_GPUS))
if ((COLOCATE)); then
    ROLLOUT_GPUS=$TOTAL_GPUS
    ACTOR_NODES=$NUM_NODES
    ACTOR_GPUS=$NUM_GPUS   # of a node
    CLUSTER_ARGS=(--colocate)
else
    ROLLOUT_GPUS=${ROLLOUT_GPUS:-$((TOTAL_GPUS / 2))}
    left=$((TOTAL_GPUS - ROLLOUT_GPUS))
    ACTOR_NODES=$((left > NUM_GPUS ? left / NUM_GPUS : 1))
    ACTOR_GPUS=$((left / ACTOR_NODES))
    ((ACTOR_GPUS > 0 && ROLLOUT_GPUS > 0 && ACTOR_NODES * ACTOR_GPUS == left)) ||
        die "ROLLOUT_GPUS=$ROLLOUT_GPUS leaves $left of $TOTAL_GPUS GPUs for training; both sides need some, and training whole" \
            "nodes of $NUM_GPUS or a part of one. Choose another ROLLOUT_GPUS."
    CLUSTER_ARGS=(--rollout-num-gpus "$ROLLOUT_GPUS")
fi
CLUSTER_ARGS+=(--actor-num-nodes "$ACTOR_NODES" --actor-num-gpus-per-node "$ACTOR_GPUS" --num-gpus-per-node "$NUM_GPUS")

package_dir() { # the folder that holds package $1
    "$PYTHON" - "$1" 2>/dev/null <<'PY' || true
import importlib.util, pathlib, sys
spec = importlib.util.find_spec(sys.argv[1])
if spec is not None:
    print(pathlib.Path(list(spec.submodule_search_locations)[0]).parent)
PY
}
SLIME_DIR=${SLIME_DIR:-$(package_dir slime)}
[[ -f ${SLIME_DIR:+$SLIME_DIR/train.py} ]] ||
    die "slime is not found${SLIME_DIR:+ in $SLIME_DIR}: set SLIME_DIR to its checkout, the folder that holds train.py."
SLIME_DIR=$(cd -- "$SLIME_DIR" && pwd)
if [[ ! ${MEGATRON_DIR:-} ]]; then
    MEGATRON_DIR=$SLIME_DIR/../Megatron-LM   # so it lies in slime's container
    [[ -d $MEGATRON_DIR ]] || MEGATRON_DIR=$(package_dir megatron)
fi
MEGATRON_DIR=${MEGATRON_DIR:+$(realpath -s -- "$MEGATRON_DIR")}

# in a fully asynchronous run nearly every game sees new weights: begun anew each time, none would end
[[ $ASYNC == full ]] && OVERRIDES=("slime.new_weights=keep" "${OVERRIDES[@]}")
[[ ${PARTNER:-} ]] && OVERRIDES+=("partner.kind=$PARTNER")
[[ ${DATA:-} ]] && OVERRIDES+=("data.train=$DATA")
[[ ${EVAL_DATA:-} ]] && OVERRIDES+=("data.eval=$EVAL_DATA")
[[ ${NUM_ROLLOUT:-} ]] && OVERRIDES+=("train.steps=$NUM_ROLLOUT")
[[ ${SAVE_INTERVAL:-} ]] && OVERRIDES+=("train.save_every=$SAVE_INTERVAL")
LAUNCH=(--config "$CONFIG" --model "$MODEL" --slime-dir "$SLIME_DIR" --gpus "$ACTOR_GPUS" --rollout-gpus "$ROLLOUT_GPUS")
[[ ${SAVE_DIR:-} ]] && LAUNCH+=(--save-dir "$SAVE_DIR")
[[ ${TP:-} ]] && LAUNCH+=(--tp "$TP")
((DRY_RUN)) || LAUNCH+=(--download)
for override in "${OVERRIDES[@]}"; do LAUNCH+=(--set "$override"); done

# MODEL_* describe the checkpoint, RUN_* the experiment
settings=$("$PYTHON" -m slim_rl.backends.slime.launch settings "${LAUNCH[@]}") || exit 1
eval "$settings"
TP=$MODEL_TP
ENGINE_GPUS=${ENGINE_GPUS:-$MODEL_ENGINE_GPUS}
((ROLLOUT_GPUS % ENGINE_GPUS == 0)) || die "ENGINE_GPUS=$ENGINE_GPUS does not divide the $ROLLOUT_GPUS GPUs of inference."
TORCH_DIST=$(realpath -ms -- "${TORCH_DIST:-$MODEL_TORCH_DIST}")   # the job has a working directory of its own
say "$MODEL_NAME is slime's $MODEL_SCRIPT${MODEL_CORRECTED:+, with $MODEL_CORRECTED}."

# ------------------------------------------------------------------------------------------------------------- flags
CHECKPOINT_ARGS=(
    --hf-checkpoint "$MODEL_DIR"   # tokenizer, and the shape of SGLang's weights
    --ref-load "$TORCH_DIST"       # where a new run starts; also the reference of a KL term
    --load "$RUN_DIR"              # where a run goes on: slime falls back to --ref-load while there is no checkpoint here
    --save "$RUN_DIR"
    --save-interval "$RUN_SAVE_EVERY"
)

ROLLOUT_ARGS=(
    --custom-generate-function-path slim_rl.rollout.generate            # plays a dialogue
    --dynamic-sampling-filter-path slim_rl.rollout.keep_usable_groups   # drops groups with too many failed games
    --custom-reward-post-process-path slim_rl.rollout.normalize_rewards # baselines that failed games cannot shift
    --custom-rollout-log-function-path slim_rl.rollout.log_rollout
    --custom-eval-rollout-log-function-path slim_rl.rollout.log_eval_rollout
    --custom-config-path "$RUN_DIR/config.yaml"
    --prompt-data "$RUN_GAMES"
    --input-key prompt        # chat messages; the hook writes the template's tokens itself, so no --apply-chat-template
    --metadata-key metadata   # the game travels in it
    --rollout-shuffle
    --rollout-seed "$RUN_SEED"
    --num-rollout "$RUN_STEPS"
    --rollout-batch-size "$RUN_GAMES_PER_STEP"
    --n-samples-per-prompt "$RUN_GROUP_SIZE"
    --global-batch-size "$RUN_BATCH"   # all games of a step in one update: on-policy
    --rollout-max-response-len "$RUN_RESPONSE_TOKENS"
    --rollout-max-context-len "$RUN_CONTEXT_TOKENS"
    --rollout-temperature "$RUN_TEMPERATURE"
    --rollout-top-p "$RUN_TOP_P"
    --balance-data            # dialogues differ in length; GPUs should not
)

EVAL_ARGS=()
if ((EVAL_INTERVAL > 0)) && [[ $RUN_EVAL_GAMES && $ASYNC != full ]]; then
    EVAL_ARGS=(
        --eval-prompt-data matching "$RUN_EVAL_GAMES"
        --eval-interval "$EVAL_INTERVAL"
        --n-samples-per-eval-prompt 1   # held-out games are many; one dialogue each gives the tightest mean
    )
fi

GRPO_ARGS=(
    # One terminal reward, and a group of dialogues of the same game to compare it with: no critic needed.
    --advantage-estimator grpo
    --eps-clip "$RUN_CLIP"
    # A wider upper clip lets rare good turns, such as a first question, grow (DAPO's clip-higher).
    --eps-clip-high "$RUN_CLIP_HIGH"
    # Asking is a matter of exploring; an entropy bonus would pay for noise in every token instead.
    --entropy-coef 0.0
    # SGLang sampled the tokens and Megatron recomputes their probabilities: truncated importance weights mend the gap.
    --use-tis
)
if [[ $RUN_KL != 0 && $RUN_KL != 0.0 ]]; then
    # Without a KL term no reference model is loaded at all. low_var_kl: unbiased and never negative.
    GRPO_ARGS+=(--use-kl-loss --kl-loss-coef "$RUN_KL" --kl-loss-type low_var_kl)
fi
if ((!RUN_SCALE_REWARDS)); then
    # Dr. GRPO: dividing by a group's deviation favours games whose dialogues all ended alike.
    GRPO_ARGS+=(--disable-grpo-std-normalization)
fi

OPTIMIZER_ARGS=(
    --optimizer adam
    --lr "$RUN_LR"
    --lr-decay-style "$RUN_LR_SCHEDULE"
    --lr-warmup-iters "$RUN_WARMUP"
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.98   # a shorter memory than 0.999: rewards drift as the policy changes
    --clip-grad "$RUN_CLIP_GRAD"
    --seed "$RUN_SEED"
)
if ((MODEL_OFFLOAD)); then # Adam's states of a model this large do not fit beside its weights
    OPTIMIZER_ARGS+=(--optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d --use-precision-aware-optimizer)
fi

PERFORMANCE_ARGS=(
    --tensor-model-parallel-size "$TP"
    --pipeline-model-parallel-size 1
    --context-parallel-size 1
    # activations are recomputed: dialogues are long and memory is what limits the batch
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 1
    --use-dynamic-batch-size
    --max-tokens-per-gpu "$RUN_TOKENS_PER_GPU"
    --attention-dropout 0.0   # Megatron's default of 0.1 would make training disagree with sampling
    --hidden-dropout 0.0
    --accumulate-allreduce-grads-in-fp32
    --attention-softmax-in-fp32
    --attention-backend flash
)
if ((TP > 1)); then PERFORMANCE_ARGS+=(--sequence-parallel); fi

SGLANG_ARGS=(
    --rollout-num-gpus-per-engine "$ENGINE_GPUS"
    --sglang-mem-fraction-static "$( ((COLOCATE)) && echo 0.7 || echo 0.85)"   # colocated, Megatron keeps a corner
    --use-fault-tolerance   # an engine that hangs is restarted; its dialogues are played again
)
if [[ ! ${ROUTER_POLICY:-} ]]; then # one dialogue, one engine: only there is its prefix cached. slime's image has the router.
    "$PYTHON" -c 'import sglang_router as r; raise SystemExit("slime" not in r.__version__)' 2>/dev/null &&
        ROUTER_POLICY=consistent_hashing
fi
[[ ${ROUTER_POLICY:-} ]] && SGLANG_ARGS+=(--router-policy "$ROUTER_POLICY")

TRAIN=train.py
if [[ $ASYNC != 0 ]]; then TRAIN=train_async.py; fi
if [[ $ASYNC == full ]]; then
    # Groups under way at once, and so how stale a dialogue can be: two steps' worth, over the engines.
    ENGINES=$((ROLLOUT_GPUS / ENGINE_GPUS))
    SGLANG_ARGS+=(
        --rollout-function-path slime.rollout.fully_async_rollout.generate_rollout_fully_async
        --sglang-server-concurrency $(((2 * RUN_GAMES_PER_STEP + ENGINES - 1) / ENGINES))
    )
fi

TRACKING_ARGS=()
if ((RUN_WANDB)) || [[ ${WANDB_API_KEY:-} || ${WANDB_MODE:-} == offline ]]; then
    # the key stays in the environment: slime would log a --wandb-key with the run's other arguments
    TRACKING_ARGS+=(
        --use-wandb --wandb-project "${WANDB_PROJECT:-slim-rl}" --wandb-group "${WANDB_GROUP:-$RUN_NAME}" --wandb-dir "$RUN_DIR"
    )
fi
if ((RUN_TENSORBOARD)); then
    export TENSORBOARD_DIR=${TENSORBOARD_DIR:-$RUN_DIR/tensorboard}
    TRACKING_ARGS+=(--use-tensorboard --tb-project-name "${WANDB_PROJECT:-slim-rl}" --tb-experiment-name "$RUN_NAME")
fi

OURS=(
    "${CLUSTER_ARGS[@]}" "${MODEL_ARGS[@]}" "${CHECKPOINT_ARGS[@]}" "${ROLLOUT_ARGS[@]}" "${EVAL_ARGS[@]}" "${GRPO_ARGS[@]}"
    "${OPTIMIZER_ARGS[@]}" "${PERFORMANCE_ARGS[@]}" "${SGLANG_ARGS[@]}" "${TRACKING_ARGS[@]}"
)
# Ours, less every flag that was handed to us too, so that none stands twice.
declare -A given=()
for word in "${PASSED[@]}"; do [[ $word == --* ]] && given[${word%%=*}]=1; done
FLAGS=()
keep=1
for word in "${OURS[@]}"; do
    if [[ $word == --* ]]; then [[ ${given[$word]:-} ]] && keep=0 || keep=1; fi
    ((keep)) && FLAGS+=("$word")
done
FLAGS+=("${PASSED[@]}")

if ((DRY_RUN)); then
    printf '%s' "$PYTHON $SLIME_DIR/$TRAIN"
    for word in "${FLAGS[@]}"; do
        if [[ $word == --* ]]; then printf ' \\\n    %s' "$word"; else printf ' %q' "$word"; fi
    done
    printf '\n'
    exit 0
fi

# -------------------------------------------------------------------------------------------------------- files
"$PYTHON" -m slim_rl.backends.slime.launch prepare "${LAUNCH[@]}" || exit 1

WITH_MEGATRON="$SLIME_DIR${MEGATRON_DIR:+:$MEGATRON_DIR}:$PYTHONPATH"
if [[ ! -f $TORCH_DIST/latest_checkpointed_iteration.txt ]]; then
    [[ ! -e $TORCH_DIST ]] || die "$TORCH_DIST is there but holds no whole checkpoint; remove it, or set TORCH_DIST to another path."
    ((GPUS_HERE)) || die "$TORCH_DIST is missing and converting takes a GPU: start this script on a GPU node once."
    say "converting $MODEL_DIR to $TORCH_DIST"
    unfinished=$TORCH_DIST.unfinished.$$
    trap 'rm -rf -- "$unfinished"' EXIT
    PYTHONPATH=$WITH_MEGATRON CUDA_DEVICE_MAX_CONNECTIONS=1 "$PYTHON" -m torch.distributed.run --standalone \
        --nproc-per-node "$((MODEL_CONVERT_GPUS < GPUS_HERE ? MODEL_CONVERT_GPUS : GPUS_HERE))" \
        "$SLIME_DIR/tools/convert_hf_to_torch_dist.py" "${MODEL_ARGS[@]}" --hf-checkpoint "$MODEL_DIR" --save "$unfinished" ||
        die "the conversion failed; its own message is above. Nothing was left behind."
    mv -T -- "$unfinished" "$TORCH_DIST"   # whole or not at all
    trap - EXIT
fi

if ((GPUS_HERE)); then # Megatron's parser asks a GPU for its kind
    say "checking the flags with slime's own parsers"
    PYTHONPATH=$WITH_MEGATRON "$PYTHON" -m slim_rl.backends.slime.flags "${FLAGS[@]}" >"$RUN_DIR/flags.log" 2>&1 || {
        tail -n 15 "$RUN_DIR/flags.log" >&2
        die "slime refuses this command line (all of its answer: $RUN_DIR/flags.log)."
    }
fi

# ------------------------------------------------------------------------------------------------------------ start
HEAD_PID=''
FOLLOWER=''
JOB=''
ENVIRONMENT=$(mktemp)   # readable by its owner alone
# shellcheck disable=SC2317  # called by the trap
stop() { # only what was started here
    set +e
    trap '' INT TERM HUP
    [[ $JOB ]] && { say "stopping the job $JOB"; timeout 60 ray job stop "$JOB"; } >&2
    for process in $FOLLOWER $HEAD_PID; do kill -TERM "$process" && wait "$process"; done 2>/dev/null
    rm -f -- "$ENVIRONMENT"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Where the user has a token, newer heads of Ray ask for it, and its other commands send it only if told to.
if [[ -z ${RAY_AUTH_MODE:-} && (-f $HOME/.ray/auth_token || ${RAY_AUTH_TOKEN:-}) ]]; then export RAY_AUTH_MODE=token; fi

if [[ ${RAY_ADDRESS:-} ]]; then
    say "joining the Ray cluster at $RAY_ADDRESS"
elif timeout 30 ray status >/dev/null 2>&1; then
    export RAY_ADDRESS=auto
    say "using the Ray cluster that runs on this machine"
else
    HEAD_IP=${MASTER_ADDR:-$( ((NUM_NODES > 1)) && hostname -I | cut -d' ' -f1 || echo 127.0.0.1)}
    RAY_PORT=${RAY_PORT:-6379}
    # port 0: any that is free, for there may be another's Ray on this machine
    ray start --head --block --node-ip-address "$HEAD_IP" --port "$RAY_PORT" --dashboard-agent-listen-port 0 \
        --num-gpus "$NUM_GPUS" --disable-usage-stats >"$RUN_DIR/ray.log" 2>&1 &
    HEAD_PID=$!
    export RAY_ADDRESS=$HEAD_IP:$RAY_PORT
    deadline=$((SECONDS + 180))
    until answer=$(timeout 60 ray job submit --no-wait -- true 2>&1); do # what takes jobs comes up last
        kill -0 "$HEAD_PID" 2>/dev/null || die "Ray's head did not start; see $RUN_DIR/ray.log."
        ((SECONDS < deadline)) || die "Ray's head takes no jobs (is ray[default] installed?): $(tail -n 1 <<<"$answer")"
        sleep 1
    done
    ((NUM_NODES == 1)) || say "on each of the other $((NUM_NODES - 1)) nodes run now:" \
        "ray start --address=$RAY_ADDRESS --num-gpus=$NUM_GPUS --block"
fi

RUNTIME=(--slime-dir "$SLIME_DIR" --key "$RUN_KEY")
[[ $MEGATRON_DIR ]] && RUNTIME+=(--megatron-dir "$MEGATRON_DIR")
nvidia-smi topo -m 2>/dev/null | grep -q 'NV[0-9]' && RUNTIME+=(--nvlink)
"$PYTHON" -m slim_rl.backends.slime.launch runtime "$ENVIRONMENT" "${RUNTIME[@]}" || exit 1

JOB=$RUN_NAME-$(date +%Y%m%d-%H%M%S)-$$
say "$RUN_NAME: $RUN_STEPS steps of $RUN_GAMES_PER_STEP games, $RUN_GROUP_SIZE dialogues each; everything is in $RUN_DIR"
ray job submit --submission-id "$JOB" --runtime-env "$ENVIRONMENT" -- "$PYTHON" "$SLIME_DIR/$TRAIN" "${FLAGS[@]}" &
FOLLOWER=$!   # in the background, so that a signal is heard at once
code=0
wait "$FOLLOWER" || code=$?
FOLLOWER=''   # both ended by themselves
JOB=''
exit "$code"
