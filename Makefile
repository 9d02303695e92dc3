# make setup | turnpike | paper | two-optima | auxiliary | joined | test | test-all | lint | bench | clean

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
RANKS ?= $(shell env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc 2>/dev/null || echo 2)
STAMP := $(VENV)/.installed
# The tests must not depend on what the user's shell or PETSc configuration holds.
CLEAN := env -u PYTHONPATH -u PYTHONHOME -u PETSC_OPTIONS -u PETSC_DIR -u SLEPC_DIR

.PHONY: help setup turnpike paper two-optima auxiliary joined test test-all lint bench clean

help:
	@echo "make setup      find Python >= 3.12, create $(VENV), install, check the machine"
	@echo "make turnpike   run cases/turnpike.toml on all cores; results in results/turnpike"
	@echo "make paper      P1's experiments and docs/paper-tables.md: about an hour on 2 cores; skips what is there"
	@echo "make two-optima the two families of optima and docs/two-optima.md: about 40 minutes on 2 cores"
	@echo "make auxiliary  P2's experiments with labels and docs/auxiliary.md: about 15 minutes on 2 cores"
	@echo "make joined     labels in the continuum, training with labels, docs/joined.md: about an hour on 2 cores"
	@echo "make test       lint, types and tests on 1, 3, 2 and 8 ranks"
	@echo "make test-all   the same with the slow checks"
	@echo "make bench      benchmark ratios"

setup: $(STAMP)
	@$(CLEAN) $(PY) -m solver.doctor

$(STAMP): pyproject.toml tools/setup.sh
	@bash tools/setup.sh $(VENV)
	@touch $(STAMP)

turnpike: $(STAMP)
	@$(CLEAN) $(BIN)/mpirun -n $(RANKS) $(PY) -m solver.run cases/turnpike.toml --overwrite

paper: $(STAMP)
	@status=0; $(CLEAN) PY=$(PY) bash tools/study.sh paper || status=$$?; \
	$(CLEAN) $(PY) -m postprocess.tables || status=$$?; exit $$status

two-optima: $(STAMP)
	@status=0; $(CLEAN) PY=$(PY) bash tools/study.sh two_optima || status=$$?; \
	$(CLEAN) $(PY) -m postprocess.two_optima || status=$$?; exit $$status

auxiliary: $(STAMP)
	@status=0; $(CLEAN) PY=$(PY) bash tools/study.sh auxiliary || status=$$?; \
	$(CLEAN) $(PY) -m postprocess.auxiliary || status=$$?; exit $$status

joined: $(STAMP)
	@status=0; $(CLEAN) PY=$(PY) bash tools/study.sh joined || status=$$?; \
	$(CLEAN) $(PY) -m postprocess.joined || status=$$?; exit $$status

lint: $(STAMP)
	@$(CLEAN) $(BIN)/ruff check .
	@$(CLEAN) $(BIN)/ruff format --check .
	@$(CLEAN) $(BIN)/mypy

test: lint
	@$(CLEAN) PY=$(PY) BIN=$(BIN) bash tools/test.sh "not slow"

test-all: lint
	@$(CLEAN) PY=$(PY) BIN=$(BIN) bash tools/test.sh "slow or not slow"

bench: $(STAMP)
	@$(CLEAN) $(PY) tests/benchmarks/bench.py
	@$(CLEAN) $(PY) tests/benchmarks/particles.py
	@$(CLEAN) $(PY) tests/benchmarks/labels.py

clean:
	rm -rf results build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
