# Needs Python 3.11 or newer and nothing else: the targets set up .venv by themselves.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install

.PHONY: help run check test bench clean

help: ## print these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' Makefile

run: .venv/run.stamp ## write the toy checkpoint, extract two prompts, look inside
	@$(BIN)/ster toy-model build/toy
	@$(BIN)/ster extract --model build/toy --input assets/prompts.json --output build/activations.json
	@$(BIN)/python assets/look_inside.py build/activations.json

check: .venv/dev.stamp ## lint, format, types and import rules: seconds
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy && $(BIN)/lint-imports

test: check ## everything that CI runs: check, then all tests
	@$(BIN)/pytest

bench: ## (to come) measure against transformers
	@echo "make bench: there are no benchmarks yet" >&2; exit 1

clean: ## remove what the other targets made
	rm -rf .venv build dist

.venv/run.stamp: pyproject.toml
	@$(PYTHON) -m venv .venv
	@$(PIP) --editable . && touch $@

.venv/dev.stamp: .venv/run.stamp
	@$(PIP) --editable '.[dev]' && touch $@
