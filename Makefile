# Every target installs and starts what it needs. `make` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
.DEFAULT_GOAL := help

LINEAGE ?= go9
PRESET ?=
N ?= 3
ARGS ?=

python := .venv/bin/python
local := $(python) -m infra.local
run := $(local) exec
watch := COLUMNS=500 PYTHONUNBUFFERED=1 $(run) prefect deployment run
# Filters Prefect's output to the messages of the run's log, without the time and the run's ID, and the states that matter.
# Tracebacks are on the run's page.
noise := deployment pull step|eployment step|submitting flow run|submitted to infrastructure|Finished in state Completed|Engine execution exited
story := sed -u -E -e '/^ /d' -e '/$(noise)/d' -e '/^●/{/Failed|Crashed|Cancel|Retry/!d}' -e 's/^▪ +[0-9.:]+ +[0-9a-f]{12} +//'

.PHONY: help setup generation campaign up down status bench drill faults test rules bounds gpu check docs docs-build format clean

help: ## show where the project stands, and this list
	@echo 'Trains AlphaGo Zero players. Every generation can be rebuilt bit for bit and audited.'
	@echo
	@if [ -e .venv/zero-stamp ]; then $(python) -m zero; else echo 'Nothing is installed yet. First: make generation'; fi
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'Variables: LINEAGE=$(LINEAGE) PRESET=go9-laptop (for a new lineage; default params.yaml) N=$(N) ARGS="options of the command" PYTHON=python3.12'
	@echo '           ZERO_PREFECT_PORT, ZERO_MLFLOW_PORT, ZERO_WEB_PORT (default: the first free port from 4200, 5000 and 8100)'

setup: ## install the pinned packages in the virtual environment .venv
	@infra/setup

up: setup ## start the Prefect and MLflow servers and a worker; deploy the flows
	@$(local) up

generation: up ## make one generation of LINEAGE: play, train, gate, record (creates the lineage the first time)
	@[ -d "$${ZERO_HOME:-.}/.zero/workspaces/$(LINEAGE)" ] || $(run) zero new $(LINEAGE) $(if $(PRESET),--preset $(PRESET))
	@echo 'Watching the run. Ctrl-C stops watching; `make down` cancels the run.'
	@$(watch) zero-generation --param 'lineage="$(LINEAGE)"' --watch | $(story)
	@echo; $(run) zero status --last $(LINEAGE)

campaign: up ## make N generations of LINEAGE in a row
	@[ -d "$${ZERO_HOME:-.}/.zero/workspaces/$(LINEAGE)" ] || $(run) zero new $(LINEAGE) $(if $(PRESET),--preset $(PRESET))
	@echo 'Watching the run. Ctrl-C stops watching; `make down` cancels the run.'
	@$(watch) zero-campaign --param 'lineage="$(LINEAGE)"' --param num_generations=$(N) --watch | $(story)
	@echo; $(run) zero status --last $(LINEAGE)

status: setup ## show the servers and the state of each lineage
	@$(local) status || true
	@$(python) -m zero status

down: ## cancel runs; stop the servers and the worker
	@! $(python) -c 'import httpx, psutil' 2>/dev/null || $(local) down

bench: setup ## measure this machine: prints the table of docs/performance.md, writes benchmarks/results/latest.json
	@$(python) -m benchmarks --out benchmarks/results/latest.json $(ARGS)

gpu: setup ## test and measure an NVIDIA GPU (half an hour; ARGS="--minutes 10" for a part of it, ARGS=--fake without a GPU)
	@$(python) -m benchmarks.gpu $(ARGS)

drill: setup ## interrupt the loop 200 times, run it again, compare the results: docs/crashes.md (an hour; full disks need root)
	@$(python) -m tests.faults.drill $(ARGS)

faults: setup ## start a cluster, kill and stop its parts in the middle of generations, compare the hashes (an hour)
	@$(python) -m tests.faults $(ARGS)

test: setup ## run all tests; they start their own servers in temporary folders
	@$(python) -m pytest $(ARGS)

rules: setup ## compare the rules of Go with GNU Go: 100,000 positions of random games on every size
	@$(python) -m tests.games.differential $(ARGS)

bounds: setup ## run every kernel with bounds checks (minutes; `make test` does this for some)
	@ZERO_BOUNDS_CHECKS=all $(python) -m pytest tests/games/test_bounds_checks.py $(ARGS)

check: setup ## check style, format, types and import layers
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy
	.venv/bin/lint-imports --no-logo

docs: setup ## show the documentation at http://127.0.0.1:8000; ARGS="--dev-addr 127.0.0.1:8001" for another port
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs serve $(ARGS)

docs-build: setup ## write the documentation to site/, as a folder of files for any web server
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build $(ARGS)

format: setup ## fix style and format
	$(python) -m ruff check --fix
	$(python) -m ruff format

clean: ## stop the servers; remove .venv and caches; keep the lineages in .zero
	@! $(python) -c 'import httpx, psutil' 2>/dev/null || { $(local) down && $(python) -m tests.cluster down; }
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	@find . -path ./.zero -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
