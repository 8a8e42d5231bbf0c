# Every target does its own set-up: the virtual environment, the pinned packages, the servers. `make` explains.
SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
.DEFAULT_GOAL := help

LINEAGE ?= go9
PRESET ?=
N ?= 3
ARGS ?=
WORKERS ?=

python := .venv/bin/python
local := $(python) -m infra.local
run := $(local) exec
cluster := $(python) -m infra.cluster
watch := COLUMNS=500 PYTHONUNBUFFERED=1 $(run) prefect deployment run
# Of what Prefect shows of a run: its log, and the states that matter. Tracebacks and the rest are on the run's page.
noise := deployment pull step|eployment step|submitt|Finished in state Completed|Engine execution exited
story := sed -u -E -e '/^ /d' -e '/$(noise)/d' -e '/^●/{/Failed|Crashed|Cancel|Retry/!d}'

.PHONY: help setup generation campaign up down status cluster cluster-down cluster-status bench drill test rules bounds check format clean

help: ## this list
	@echo 'AlphaGo Zero as a project whose every generation can be rebuilt and audited.'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'Variables: LINEAGE=$(LINEAGE) PRESET=go9-laptop (of a new lineage; else params.yaml) N=$(N) WORKERS=4 ARGS="of pytest or the benchmarks" PYTHON=python3.12'
	@echo '           ZERO_PREFECT_PORT, ZERO_MLFLOW_PORT (free ones, from 4200 and 5000, where they are not set)'

setup: ## the virtual environment .venv with the pinned packages
	@infra/setup

up: setup ## start the Prefect and MLflow servers and a worker, and deploy the flows
	@$(local) up

generation: up ## one generation of LINEAGE: play, train, gate, record (the first time the lineage is made)
	@[ -d .zero/workspaces/$(LINEAGE) ] || $(run) zero new $(LINEAGE) $(if $(PRESET),--preset $(PRESET))
	@echo 'Watching. Ctrl-C ends the watching, not the run; `make down` cancels it.'
	@$(watch) zero-generation --param 'lineage="$(LINEAGE)"' --watch | $(story)
	@$(run) zero status $(LINEAGE)

campaign: up ## N generations of LINEAGE, one after the other
	@[ -d .zero/workspaces/$(LINEAGE) ] || $(run) zero new $(LINEAGE) $(if $(PRESET),--preset $(PRESET))
	@echo 'Watching. Ctrl-C ends the watching, not the run; `make down` cancels it.'
	@$(watch) zero-campaign --param 'lineage="$(LINEAGE)"' --param num_generations=$(N) --watch | $(story)
	@$(run) zero status $(LINEAGE)

status: setup ## what runs, and where the lineages stand
	@$(local) status; true
	@$(python) -m zero status

down: ## cancel what runs and stop the servers and the worker
	@[ ! -x $(python) ] || $(local) down

cluster: setup ## a whole cluster on this machine with WORKERS workers: PostgreSQL, S3 store, Prefect, MLflow, with passwords
	@$(cluster) up $(if $(WORKERS),--workers $(WORKERS))

cluster-status: setup ## what of the cluster runs, where, and where its passwords are
	@$(cluster) status

cluster-down: ## cancel what runs on the cluster and stop all of it
	@[ ! -x $(python) ] || $(cluster) down

bench: setup ## how fast this machine is: the table of docs/performance.md, also as benchmarks/results/latest.json
	@$(python) -m benchmarks --out benchmarks/results/latest.json $(ARGS)

drill: setup ## kill the loop 200 times, resume it, and compare what comes out: docs/crashes.md (an hour; the disks need root)
	@$(python) -m infra.drill $(ARGS)

test: setup ## all tests; those with servers start their own, in folders and on ports of their own
	@$(python) -m pytest $(ARGS)

rules: setup ## the rules of Go against GNU Go: 100,000 positions of random games on every size
	@$(python) -m tests.games.differential $(ARGS)

bounds: setup ## every kernel compiled with bounds checks and run (minutes; the tests run some of them so)
	@ZERO_BOUNDS_CHECKS=all $(python) -m pytest tests/games/test_bounds_checks.py $(ARGS)

check: setup ## style, format, types and import layers
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy
	.venv/bin/lint-imports --no-logo

format: setup ## mend the style and format of the sources
	$(python) -m ruff check --fix
	$(python) -m ruff format

clean: ## stop the servers, remove .venv and caches; the lineages in .zero are kept
	@[ ! -x $(python) ] || { $(local) down && $(cluster) down; }
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	@find . -path ./.zero -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
