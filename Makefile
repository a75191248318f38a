# Two commands matter: `make demo` and `make test`. Both create .venv from requirements.lock when it is missing
# or the lock has changed. `make help` lists the rest.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
# Processes that share the tests, each about 2 GB; a file's tests stay together, so that what they share is made once.
WORKERS ?= 2
# Extra arguments for pytest, for example: make pytest ARGS="tests/easyrec/config -x"
ARGS ?=
SOURCES := easyrec evaluation serving tests docs benchmarks examples

# The first Python that runs and is one that TensorFlow supports; `make PYTHON=/path/to/python3.12 ...` overrides.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	"$$name" -c '$(SUPPORTED)' 2>/dev/null && { command -v "$$name"; break; }; done)

.PHONY: help demo test nightly venv lint format types imports pytest simulations docs benchmark lock clean

help:  ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: venv  ## Train, measure and export two models on MovieLens, then ask them for recommendations
	$(BIN)/easyrec demo

test: lint types imports pytest  ## Everything that must pass: lint, types, import rules and the test suite

venv: $(VENV)/.installed  ## Create or refresh .venv from requirements.lock

# A copy of the lock is the mark of a finished installation: an interrupted one is started again, and a lock that
# only looks newer (a fresh checkout of the same content) costs nothing.
$(VENV)/requirements.lock: requirements.lock
	@test -n "$(PYTHON)" || { \
	  echo "No Python 3.11, 3.12 or 3.13 was found."; \
	  echo "On Debian or Ubuntu: sudo apt-get install python3.11 python3.11-venv"; \
	  echo "Or name one: make PYTHON=/path/to/python3.11 ..."; exit 2; } >&2
	@"$(PYTHON)" -c '$(SUPPORTED)' || { \
	  echo "$(PYTHON) is $$("$(PYTHON)" --version 2>&1), but Python 3.11, 3.12 or 3.13 is needed (TensorFlow has no others)."; \
	  exit 2; } >&2
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  version=$$("$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "$(PYTHON) cannot create virtual environments: its venv package is not installed."; \
	  echo "On Debian or Ubuntu: sudo apt-get install python$$version-venv"; exit 2; } >&2
	@if cmp -s requirements.lock $@ && $(BIN)/python -c '' 2>/dev/null; then touch $@; else \
	  set -e; \
	  echo "Creating $(VENV) with $$("$(PYTHON)" --version) and the packages of requirements.lock (about 3 GB on disk; a few minutes)"; \
	  "$(PYTHON)" -m venv --clear "$(VENV)"; \
	  quiet=--quiet; if [ -t 1 ]; then quiet=; fi; \
	  $(BIN)/python -m pip install $$quiet --disable-pip-version-check --no-input -r requirements.lock; \
	  cp requirements.lock $@; \
	fi

# The build backend comes from the lock too, so nothing unpinned is downloaded.
$(VENV)/.installed: $(VENV)/requirements.lock pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --no-index --no-deps --no-build-isolation --editable .
	@touch $@

lint: venv  ## Check style with ruff
	$(BIN)/ruff check $(wildcard $(SOURCES))
	$(BIN)/ruff format --check $(wildcard $(SOURCES))

format: venv  ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix $(wildcard $(SOURCES))
	$(BIN)/ruff format $(wildcard $(SOURCES))

types: venv  ## Check types with mypy
	$(BIN)/mypy

imports: venv  ## Check the direction of imports with import-linter
	$(BIN)/lint-imports

pytest: venv  ## Run the test suite alone
	$(BIN)/pytest -n $(WORKERS) --dist loadfile $(ARGS)

nightly: venv  ## Run the tests of clusters that take minutes: processes killed, cables cut, disks full
	$(BIN)/pytest -m nightly $(ARGS)

# Experiments to simulate from logs to verdicts; about three seconds each.
SIMULATIONS ?= 200
simulations: venv  ## Check the promises of the analysis of experiments (false alarms, power, coverage) on many of them
	EASYREC_SIMULATIONS=$(SIMULATIONS) $(BIN)/pytest -n $(WORKERS) tests/evaluation/abtest/test_simulations.py $(ARGS)

docs: venv  ## Regenerate the reference pages under docs/reference from the code
	$(BIN)/python docs/generate_reference.py

benchmark: venv  ## Measure training throughput against hand-written loops
	$(BIN)/python benchmarks/train_throughput.py

# Keeps the pinned versions where pyproject.toml allows them; `make lock UPGRADE=--upgrade` takes the newest.
# One set of versions serves every supported Python (fork-strategy fewest).
UPGRADE ?=
lock:  ## Bring requirements.lock in line with pyproject.toml
	@set -e; tool=$$(mktemp -d); trap 'rm -rf "$$tool"' EXIT; \
	"$(PYTHON)" -m venv "$$tool" && "$$tool/bin/pip" install --quiet --disable-pip-version-check uv; \
	"$$tool/bin/uv" pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 \
	  --extra demo --extra litert --extra redis --extra faiss --extra tracing --extra dev --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock" $(UPGRADE) pyproject.toml --output-file requirements.lock

clean:  ## Remove .venv, caches and builds; never data or runs
	rm -rf "$(VENV)" build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(wildcard $(SOURCES)) -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
