# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
KERNEL := $(wildcard mapreduce/dataflow/*.c mapreduce/dataflow/*.h)
PACKAGES := cluster dfs mapreduce streaming tui view
SEEDS  ?= 5000
MINUTES ?= 30

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench soak clean

help:
	@echo "make demo    start three local hosts, store a file, count its words, clean up"
	@echo "make test    the gate: everything, on real processes and real hosts (under 20 minutes)"
	@echo "make check   format, lint, types, unit and house tests (quick; before every commit)"
	@echo "make bench   the tables of docs/performance.md"
	@echo "make soak    SEEDS=$(SEEDS) simulated histories, then MINUTES=$(MINUTES) of jobs while everything dies"

setup: $(VENV)/.ready

# The compiler and the venv module are the only things PyPI cannot give us.
$(VENV)/.ready: pyproject.toml $(KERNEL)
	@command -v cc >/dev/null && $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev python3-venv python3-dev; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable . --group dev
	$(BIN)/python -m compileall -q $(PACKAGES)
	touch $@

demo: setup
	@$(BIN)/python examples/demo.py

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	tests/cluster/install.sh
	$(BIN)/pytest -q --no-skips -n 2 tests/house tests/unit tests/paper tests/property tests/simulation tests/conformance
	$(BIN)/pytest -q --no-skips -n 3 --dist loadfile tests/cluster

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q -x --no-skips tests/unit tests/house

bench: setup
	$(BIN)/python -m compileall -q $(PACKAGES)
	$(BIN)/python tests/benchmarks

soak: setup
	$(BIN)/python tests/simulation --seeds $(SEEDS)
	$(BIN)/python tests/property/fuzz --seeds $(SEEDS)
	MRSTREAM_SEEDS=0:$(SEEDS) $(BIN)/pytest -q --timeout 0 tests/simulation/test_dfs.py
	$(BIN)/python tests/cluster/dfs_soak.py
	$(BIN)/python tests/cluster/job_soak.py --minutes $(MINUTES)
	tests/cluster/install.sh
	for hosts in netns docker; do \
	  $(BIN)/python tests/cluster/job_soak.py --hosts $$hosts --master-kills 50 || exit 1; done

clean:
	rm -rf build dist *.egg-info $(VENV)
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
