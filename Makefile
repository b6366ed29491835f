# `make run` and `make test` set everything up by themselves, in .venv; both can be repeated at will.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TRACKERS ?= .venv-trackers
JOBS ?= 2
.DEFAULT_GOAL := help
.PHONY: help run test lint types docs test-slow test-gpu test-trackers forms rewards bench-peers bench-sb3 bench-urlb clean

help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[report,video,atari,dmc,docs,faiss,minari,tensorboard,dev]"
	touch $@

run: $(VENV)/.ready  ## a curious agent in a maze beside one that is not: about 3 minutes, ends with the page's path
	$(BIN)/intrigue reproduce quickstart --out runs/quickstart

test: $(VENV)/.ready lint types  ## format, lint, types and the whole default suite
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow and not gpu and not trackers"

lint: $(VENV)/.ready  ## format, lint and the layers of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.ready  ## the strict type checker
	$(BIN)/mypy

docs: $(VENV)/.ready  ## build the documentation strictly, into site/
	$(BIN)/mkdocs build --strict

test-slow: $(VENV)/.ready  ## the slower proofs: kills by system call, full disks, studies trained at their smallest, mutants
	$(BIN)/python -m pytest -m slow

test-gpu: $(VENV)/.ready  ## what needs a CUDA device
	$(BIN)/python -m pytest -m gpu

$(TRACKERS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TRACKERS)
	grep -v '^pillow==' constraints.txt > $(TRACKERS)/constraints.txt  # trackio 0.43 needs one below 13
	$(TRACKERS)/bin/python -m pip install -q --disable-pip-version-check -c $(TRACKERS)/constraints.txt -e ".[tensorboard,wandb,trackio,dev]"
	touch $@

test-trackers: $(TRACKERS)/.ready  ## copies of metrics to the real Weights & Biases and trackio, offline
	$(TRACKERS)/bin/python -m pytest -m trackers tests/unit/run/logging

forms: $(VENV)/.ready  ## the table of NNM's forms on the maze (about 20 minutes)
	$(BIN)/intrigue reproduce forms --budget hour --out runs/forms

rewards: $(VENV)/.ready  ## the table of every bonus on the maze, with and without a noisy screen (about half an hour)
	$(BIN)/intrigue reproduce rewards --budget hour --out runs/rewards

# rllte-core's own pins (matplotlib 3.6.0) do not install beside numpy 2; what its rewards import is named here.
bench-peers: $(VENV)/.ready  ## our scoring speed beside RLeXplore's, in one process (about 3 minutes)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps rllte-core==1.0.1 termcolor nvidia-ml-py
	$(BIN)/python benchmarks/peers.py --json results/peers-cpu.json

# In a folder of its own, so that nothing it needs changes what we are tested with; torch and gymnasium are ours.
SB3 := .sb3
$(SB3)/.ready: $(VENV)/.ready
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --target $(SB3) \
		stable-baselines3==2.9.2 pandas==3.1.1 opencv-python-headless==5.0.0.93
	touch $@

bench-sb3: $(SB3)/.ready  ## our PPO's speed on Atari beside Stable-Baselines3's, in turns (about 5 minutes)
	PYTHONPATH=$(SB3) $(BIN)/python benchmarks/sb3_atari.py --json results/sb3-cpu.json

bench-urlb: $(VENV)/.ready  ## our update at URLB's sizes beside URLB's own and the matrix products in it (about 1 minute)
	$(BIN)/python benchmarks/urlb_cpu.py --json results/urlb-cpu.json

clean:  ## remove what the targets made, runs excepted
	rm -rf $(VENV) $(SB3) site .mypy_cache .pytest_cache .ruff_cache .hypothesis
