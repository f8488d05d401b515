# `make` lists the targets. Each sets up what it needs, on a fresh machine with Python 3.11 and make.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SLIME := build/slime-env
ADAPTERS := .venv-adapters# verifiers wants another openai than verl, and OpenEnv another mcp
OPENENV := .venv-openenv
# The exact versions in the constraints files are for these machines; on any other, and with LOCK=no, the ranges of pyproject.toml hold.
LOCK ?= $(if $(filter $(shell $(PYTHON) -c 'import platform as p; print(p.system(), p.machine(), *p.python_version_tuple()[:2], sep="-")'),\
    $(addprefix Linux-x86_64-3-,11 12 13)),yes,no)
constraints = $(if $(filter yes,$(LOCK)),-c $(1))
INSTALL := $(BIN)/pip install --quiet $(call constraints,constraints.txt)
# Pinned, and installed first: left to itself pip would take gigabytes of CUDA with it.
TORCH := $(shell grep '^torch==' constraints.txt)
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1
export TRL_EXPERIMENTAL_SILENCE ?= 1
export NO_MKDOCS_2_WARNING ?= 1
unexport PYTHONDONTWRITEBYTECODE# containers often set it: then each of the tests' hundred Pythons would compile slim_rl
.PHONY: run run-slime test test-others test-adapters test-slime first-hour check docs format bench qwen qwen-slime clean lock help

## train a tiny Qwen on a CPU against the shy partner, then make its report
run: $(VENV)/local
	$(BIN)/slim-rl train configs/matching_local.yaml
	$(BIN)/slim-rl analyze --log-dir runs/matching_local/logs --output-dir plots
	@echo "Open plots/report.html in a browser; figures are in plots/. For slim-rl itself: . $(BIN)/activate"

## the same by slime, Megatron-LM and SGLang on a CPU: docs/tutorials/first-slime-run.md
run-slime: $(SLIME)/installed
	PYTHONPATH=tools $(SLIME)/bin/python -m slime_cpu configs/matching_local.yaml --set name=matching_slime --set policy.top_p=1 \
	    --set train.steps=$(or $(STEPS),50) --set train.save_every=10
	$(SLIME)/bin/slim-rl analyze --log-dir runs/matching_slime/logs --output-dir plots/slime
	@echo "Open plots/slime/report.html in a browser; the model is in runs/matching_slime/model."

## all tests, style and types
test: $(VENV)/dev
	$(MAKE) -j 2 check test-others

## all tests but those of slime
test-others: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slime"

## slime and Megatron themselves on a CPU, the longest test first
test-slime: $(VENV)/dev $(SLIME)/installed
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/slime_cpu/test_run.py tests/slime_cpu

## the games in verifiers, OpenEnv and Gymnasium, llama.cpp
test-adapters: $(ADAPTERS)/installed $(OPENENV)/installed
	$(ADAPTERS)/bin/python -m pytest tests/adapters --ignore=tests/adapters/test_openenv.py
	$(OPENENV)/bin/python -m pytest tests/adapters/test_openenv.py

## a newcomer's first hour, from a built wheel in an empty folder
first-hour:
	CONSTRAINTS=$(if $(filter yes,$(LOCK)),constraints-adapters.txt) PYTHON=$(PYTHON) tests/first_hour.sh

## style, types, import contracts, prose and the site's links
check: $(VENV)/dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy slim_rl scripts analysis examples benchmarks tools
	$(BIN)/lint-imports && $(BIN)/python tools/lint_prose.py
	$(BIN)/mkdocs build --strict

## the documentation as a site: build/site/index.html
docs: $(VENV)/dev
	$(BIN)/mkdocs build --strict
## fix style
format: $(VENV)/dev
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

## ratios of speed to plain ways of doing the same
bench: $(VENV)/dev
	for file in benchmarks/bench_*.py; do echo "== $$file"; PYTHONPATH=tools $(BIN)/python $$file || exit 1; done
## a Qwen of 0.5B, or QWEN=DIR: warm start, gate, GRPO, report; half an hour or more
qwen qwen-slime: $(VENV)/local
	$(if $(QWEN),test -d $(QWEN) || { echo "There is no folder $(QWEN)."; exit 1; }; mkdir -p build; \
	  test -e build/qwen || ln -s $(realpath $(QWEN)) build/qwen; test build/qwen -ef $(QWEN) || { echo "build/qwen is another model; remove it and build/qwen_start."; exit 1; })
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/slim-rl lab run analysis/$(subst -,_,$@)
## the same by slime, Megatron-LM and SGLang on a CPU, with all weights
qwen-slime: $(SLIME)/installed

## remove environments, runs, plots and caches
clean:
	rm -rf $(VENV) $(ADAPTERS) $(OPENENV) dist runs plots build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
## list these
help:
	@awk '/^## /{if (!about) about = substr($$0, 4); next} /^[a-z0-9 -]+:/{if (about) printf "%-14s %s\n", $$1, about} {about = ""}' $(MAKEFILE_LIST)

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
	$(SLIME)/bin/python -m pip install --quiet -c $< uv && $(SLIME)/bin/python -m pip install --quiet -c $< "$(TORCH)"
	$(SLIME)/bin/uv pip install --quiet --python $(SLIME)/bin/python --no-deps -r $< -e .
	@touch $@

TESTED := .[local,verl,dev]
ADAPTED := .[local,llamacpp,dev] -e environments/slim_rl_matching -e environments/slim_rl_gymnasium
ADAPTED_OPENENV := .[local,dev] -e environments/slim_rl_openenv
$(OPENENV)/installed: ADAPTED = $(ADAPTED_OPENENV)
.venv-%/installed: constraints-%.txt pyproject.toml $(wildcard environments/*/pyproject.toml)
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade $(call constraints,$<) pip
	$(@D)/bin/pip install --quiet $(call constraints,$<) "$(TORCH)" && $(@D)/bin/pip install --quiet $(call constraints,$<) -e $(ADAPTED)
	@touch $@

## newest versions within the ranges of pyproject.toml
lock:
	for each in "constraints.txt $(TESTED)" "constraints-adapters.txt $(ADAPTED)" "constraints-openenv.txt $(ADAPTED_OPENENV)"; do \
	  set -- $$each && file=$$1 && shift && rm -rf build/lock && $(PYTHON) -m venv build/lock && pip="build/lock/bin/python -m pip" && \
	  $$pip install --quiet --upgrade pip && $$pip install --quiet "$(TORCH)" && $$pip install --quiet -e "$$@" && \
	  { grep '^#' $$file; $$pip freeze --all --exclude-editable | sed 's/^torch==.*/$(TORCH)/'; } > build/lock/new && \
	  mv build/lock/new $$file || exit 1; \
	done
