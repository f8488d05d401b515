#!/usr/bin/env bash
# A newcomer's first hour in a few minutes: builds the wheel, installs it into a fresh environment, and in an empty folder does what the
# README says, checking after each command that it left and printed what it should.
#
#   tests/first_hour.sh                                        everything: training on the CPU, Gymnasium, verifiers
#   EXTRAS=gymnasium PYTHON=python3.13 tests/first_hour.sh     without torch: what needs a model is left out
#
# From the environment: PYTHON (python3), EXTRAS (local,gymnasium,verifiers), CONSTRAINTS (a file of exact versions; none), and
# KEEP=1, which leaves the folder where it is.
set -euo pipefail

repository=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
extras=${EXTRAS-local,gymnasium,verifiers}
constraints=${CONSTRAINTS:+-c $(realpath "$CONSTRAINTS")}
work=$(mktemp -d)
seen=$work/seen
server=
finish() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    [[ -n ${KEEP:-} ]] || rm -rf "$work"
}
trap finish EXIT
unset PYTHONPATH
export PIP_CACHE_DIR=${PIP_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/pip}
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 TRL_EXPERIMENTAL_SILENCE=1 COLUMNS=80 HOME=$work/home
mkdir -p "$work/home" "$work/empty"

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }
fail() {
    tail -n 60 "$seen"
    printf '\nfirst_hour: %s\n' "$1" >&2
    exit 1
}
run() { # a command that must succeed; what it prints is kept for `sees`
    printf '$ %s\n' "$*"
    "$@" >"$seen" 2>&1 || fail "this failed: $*"
}
refused() { # a command that must fail with one sentence
    printf '$ %s\n' "$*"
    if "$@" >"$seen" 2>&1; then fail "this should have been refused: $*"; fi
    ! grep -q Traceback "$seen" || fail "a traceback instead of a sentence: $*"
}
sees() { grep -qE -- "$1" "$seen" || fail "'$1' was not printed"; }
has() { for file in "$@"; do [[ -s $file ]] || fail "$file was not written"; done; }
with() { [[ ,$extras, == *,$1,* ]]; }

step "install"
"${PYTHON:-python3}" -m venv "$work/venv"
export PATH="$work/venv/bin:$PATH"
run pip wheel --quiet --no-deps --wheel-dir "$work" "$repository"
wheel=$(ls "$work"/slim_rl-*.whl)
# shellcheck disable=SC2086  # $constraints is two words or none
run pip install --quiet $constraints "$wheel$(with local && printf '[local]')"
cd "$work/empty"
run python -c 'import slim_rl; print(slim_rl.__file__, "_bundled", slim_rl.__version__)'
sees "$work/venv/.*_bundled"
run slim-rl --version
sees '^slim-rl [0-9]+\.[0-9]+'
run slim-rl --help
sees 'matching_local'
refused slim-rl train matching_locl
sees 'Cannot read the config matching_locl.*matching_local'

step "what a config pays"
run slim-rl lab incentives matching_local --games 100 --questions 1,4
sees 'Asking raises the reward'

if with local; then
    step "train, and train on"
    run slim-rl train matching_local --set train.steps=1 --set train.eval_games=20
    sees 'questions'
    run slim-rl train matching_local --set train.steps=2 --set train.eval_games=20
    sees 'step +1: '
    has runs/matching_local/model/model.safetensors data/local/train.jsonl runs/matching_local/logs/*.jsonl

    step "look"
    run slim-rl analyze --log-dir runs/matching_local/logs --output-dir plots
    sees 'plots/report.html'
    has plots/report.html plots/summary.json plots/*.png
    run slim-rl show runs/matching_local/logs --num 1 --where "phase == 'eval'"
    sees 'policy> .*\['
    sees '1 of [0-9]+ dialogues'

    step "evaluate, also with another partner"
    run slim-rl evaluate matching_local --checkpoint data/warmstart --checkpoint runs/matching_local/model \
        --partner shy --partner mute --mode free --games 10
    sees 'of 10 games'
    has logs/evaluation/warmstart_shy_free.jsonl logs/evaluation/matching_local_mute_free.jsonl
    run slim-rl export runs/matching_local --results logs/evaluation --output exported
    has exported/README.md exported/model.safetensors

    step "an experiment, from an empty folder to its page"
    run slim-rl lab init own
    mv own/examples/experiment paper
    has paper/experiment.yaml paper/PREREGISTRATION.md
    cd paper
    few=(--set train.games_per_step=2 --set train.group_size=4 --set train.eval_games=10 --set data.num_train=40 --set data.num_eval=10)
    run slim-rl lab run matching_local --arm shy --arm mute --seeds 0 --set train.steps=1 --set train.processes=1 "${few[@]}"
    sees 'slim-rl analyze '
    run slim-rl lab page .
    has results/results.html results/README.md
    cd ..

    step "a start of your own"
    run slim-rl lab warmstart matching_local --set warmstart.games=24 --set 'warmstart.lessons={}' --set warmstart.tokenizer_games=24 --output start
    has start/model.safetensors start/tokenizer.json
else
    step "train without the extra"
    refused slim-rl train matching_local --set train.steps=2
    sees "needs torch.*pip install 'slim-rl\[local\]'"
fi

step "play"
printf '%s\n' 'What is Ava Li on BLEU?' '[propose]' 'BLEU: Ava Li' 'Electra: Daniel Nguyen' 'GloVe: Sofia Patel' '' >typed
run slim-rl play matching_local <typed
sees 'your scores'
sees 'partner> \[message\] .*Ava Li'
sees 'ended: agreed'
sees 'reward: [01]\.[0-9]'
run slim-rl play matching_local --set partner.kind=mute <typed
sees 'ended: agreed'

step "games, and a config that wants more of them"
run slim-rl generate matching_offline --num-games 1000 --output data/games.jsonl
has data/games.jsonl
run slim-rl generate matching_offline
sees '1,000 of the 6,400 games'
has data/games_eval.jsonl
refused slim-rl generate matching_offline --set game.n=6
sees 'slim-rl generate CONFIG --overwrite'
if with local; then
    run slim-rl doctor matching_offline --backend trl --set policy.model=data/warmstart
    sees '1000 in data/games.jsonl'
    sees '1,000 of the 6,400 games'
fi

step "a partner of your own"
printf '%s\n' 'Is it in row A?' 5 >typed
run slim-rl play treasure <typed
honest=$(grep -o 'partner> .*' "$seen")
run slim-rl play treasure --set partner.kind=examples.lying_partner.LyingPartner --set 'partner.args={lies: 1.0}' <typed
[[ $(grep -o 'partner> .*' "$seen") != "$honest" ]] || fail "the lying partner says what the honest one says"
run slim-rl lab init .
has configs/matching_local.yaml examples/lying_partner.py scripts/run_matching.sh
{
    echo 'from examples.treasure import HonestPartner'
    echo 'from slim_rl import Turn'
    echo 'class Silent(HonestPartner):'
    echo '    async def act(self, view): return Turn("I shall not say.")'
} >silent.py
run slim-rl play examples/treasure.yaml --set partner.kind=silent.Silent <typed
sees 'partner> I shall not say'
run python scripts/generate_data.py --num_games 3 --output data/three.jsonl
has data/three.jsonl
cat >recorded.jsonl <<'JSON'
{"table": [[9, 1, 1], [1, 9, 1], [1, 1, 9]], "mask1": [[1, 1, 1], [1, 1, 1], [1, 1, 1]], "mask2": [[1, 1, 1], [1, 1, 1], [1, 1, 1]], "scale1": 1.0, "scale2": 2.0, "best_assignment_reward": 27, "action_log": [{"type": "message", "player": 0, "message": {"data": "Ava on BLEU?"}}, {"type": "message", "player": 1, "message": {"data": "Nine."}}, {"type": "proposal", "player": 0, "proposal": "BLEU: Ava Li<br/>Electra: Daniel Nguyen<br/>GloVe: Sofia Patel", "proposal_ids": [[0, 0], [1, 1], [2, 2]]}, {"type": "proposal_response", "player": 1, "response": {"accept": true}}]}
JSON
run slim-rl lab convert recorded.jsonl --output data/recorded.jsonl
has data/recorded.jsonl
if with local; then
    run python -m examples.train examples/treasure.yaml --set train.steps=1 --set train.eval_games=8
    has runs/treasure/model/model.safetensors
fi

if with gymnasium; then
    step "Gymnasium"
    # shellcheck disable=SC2086
    run pip install --quiet $constraints "$repository/environments/slim_rl_gymnasium"
    cat >gym.py <<'PYTHON'
import gymnasium

env = gymnasium.make("slim_rl_gymnasium:slim_rl/Matching-v0", config="matching_local", partner="forthcoming")
text, info = env.reset(seed=1)
assert info["messages"], info
text, *_ = env.step("[message] What is Ava Li on BLEU?")
text, reward, over, *_ = env.step("[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel")
env.close()
assert over and 0 < reward <= 1, (over, reward, text)
print("reward", reward)
PYTHON
    run python gym.py
    sees 'reward 0\.'
fi

if with verifiers; then
    step "verifiers"
    # shellcheck disable=SC2086
    run pip install --quiet $constraints "$repository/environments/slim_rl_matching"
    cat >model.py <<'PYTHON'
"""A model behind an OpenAI-compatible endpoint: asks once, then proposes."""
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SAYS = ["[message] What is Ava Li on BLEU?", "[propose]\nBLEU: Ava Li\nElectra: Daniel Nguyen\nGloVe: Sofia Patel"]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        before = sum(message["role"] == "assistant" for message in asked["messages"])
        message = {"role": "assistant", "content": SAYS[min(before, 1)]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        told = {"id": "1", "object": "chat.completion", "created": 0, "model": asked["model"], "choices": [choice], "usage": usage}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
PYTHON
    python model.py >port &
    server=$!
    for _ in {1..50}; do [[ -s port ]] && break || sleep 0.2; done
    run vf-eval slim-rl-matching -n 2 -r 1 --model any --client.base-url "http://127.0.0.1:$(cat port)/v1" --client.api-key-var NO_KEY \
        --env.taskset.config matching_local --env.taskset.num-games 2 --no-push --no-rich --output-dir evals --run.name first
    has evals/first/traces.jsonl
    run python -c 'import json; traces = [json.loads(line)["traces"][0] for line in open("evals/first/traces.jsonl")]
print(len(traces), [trace["rewards"]["reward"]["score"] > 0 and trace["metrics"]["questions"] == 1 for trace in traces])'
    sees '^2 \[True, True\]'
fi

step "all as it should be"
