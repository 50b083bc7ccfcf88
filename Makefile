# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
KERNEL := $(wildcard mapreduce/dataflow/*.c mapreduce/dataflow/*.h)
PACKAGES := api cluster dfs lock mapreduce saw streaming tui view web
SEEDS  ?= 5000
MINUTES ?= 30
JOBS ?= 100

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench soak interop clean

help:
	@echo "make demo    start three local hosts, store a file, count its words, clean up"
	@echo "make test    the gate: everything, on real processes and real hosts (under 25 minutes)"
	@echo "make check   format, lint, types, unit and house tests (quick; before every commit)"
	@echo "make bench   the tables of docs/performance.md"
	@echo "make interop Hadoop's contract tests, rclone, DuckDB and Spark's s3a against a gateway; golden cases on Ray, Spark, Hadoop, which read and write our records; JOBS=$(JOBS) random jobs (Java, Maven)"
	@echo "make soak    SEEDS=$(SEEDS) simulated histories, then MINUTES=$(MINUTES) of jobs while everything dies"

setup: $(VENV)/.ready

# The venv module and a compiler are the only things PyPI cannot give us. Only root can install them;
# anybody else is told what to install. Without a compiler the demonstration works, and more slowly.
define install
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	   apt-get update -qq && apt-get install -y -qq --no-install-recommends $(2); \
	 else \
	   echo "$(1); install it first: on Debian or Ubuntu, sudo apt-get install $(2)"; exit 1; \
	 fi
endef

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "mrstream needs Python 3.11 or newer, and this is $$($(PYTHON) -V 2>&1): make PYTHON=python3.12 demo"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || $(MAKE) --no-print-directory .venv-module
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

.PHONY: .venv-module .compiler
.venv-module:
	$(call install,$(PYTHON) lacks the module venv or ensurepip,python3-venv)

.compiler:
	$(call install,there is no C compiler (cc) here,gcc libc6-dev python3-dev)

# What the demonstration needs: the package itself, without the tools of its developers.
$(VENV)/.installed: pyproject.toml $(KERNEL) | $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.ready: pyproject.toml $(KERNEL) | $(VENV)/bin/python
	@command -v cc >/dev/null || $(MAKE) --no-print-directory .compiler
	$(BIN)/pip install --quiet --editable '.[http,records,saw]' --group dev
	$(BIN)/python -m compileall -q $(PACKAGES)
	touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	@$(BIN)/python examples/demo.py

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	tests/cluster/install.sh
	tests/web/install.sh
	$(BIN)/mypy
	$(BIN)/pytest -q --no-skips -n 2 --dist worksteal tests/house tests/unit tests/paper tests/property tests/simulation tests/conformance tests/sawzall tests/web
	$(BIN)/pytest -q --no-skips -n 4 --dist loadfile --no-loadscope-reorder tests/cluster tests/doors

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q -x --no-skips tests/unit tests/house

bench: setup
	$(BIN)/python -m compileall -q $(PACKAGES)
	$(BIN)/python tests/benchmarks

interop: setup
	$(BIN)/python tests/doors/hadoop/run.py
	$(BIN)/python tests/doors/rclone.py
	$(BIN)/python tests/doors/duckdb_httpfs.py
	$(BIN)/python -m tests.conformance.differential --other hadoop --jobs $(JOBS)
	$(BIN)/pip install --quiet --editable '.[spark]'
	$(BIN)/python -m tests.conformance.records_interop
	$(BIN)/python tests/doors/s3a/run.py
	for engine in ray spark hadoop hadoop-cluster; do $(BIN)/python tests/cluster/engine_interop.py $$engine || exit 1; done

soak: setup
	$(BIN)/python tests/simulation --seeds $(SEEDS)
	$(BIN)/python tests/property/fuzz --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation.consensus.exhaustive --whole --minutes $(MINUTES)
	MRSTREAM_SEEDS=0:$(SEEDS) $(BIN)/pytest -q --timeout 0 tests/simulation/test_dfs.py tests/simulation/test_dfs_reading.py tests/simulation/test_lock.py tests/simulation/test_lock_group.py
	MRSTREAM_FAILOVER_SEEDS=0:$(SEEDS) $(BIN)/pytest -q --timeout 0 tests/simulation/test_failover.py
	MRSTREAM_TOGETHER_SEEDS=0:$(SEEDS) $(BIN)/pytest -q --timeout 0 tests/simulation/test_together.py
	MRSTREAM_SERIALISED_SEEDS=0:$(SEEDS) $(BIN)/pytest -q --timeout 0 tests/simulation/test_dfs_serialised.py
	MRSTREAM_CELLS_SEEDS=0:$(SEEDS) $(BIN)/pytest -q --timeout 0 tests/simulation/test_dfs_cells.py
	MRSTREAM_FLOW_SEEDS=$(SEEDS) MRSTREAM_FLOW_DEATHS=all $(BIN)/pytest -q --timeout 0 tests/simulation/test_flows.py tests/unit/mapreduce/flow/test_runner.py
	MRSTREAM_JOB_SEEDS=0:$(SEEDS) $(BIN)/pytest -q --timeout 0 tests/simulation/test_job_failover.py
	for seed in 1 2 3 4; do MRSTREAM_SORT_SEED=$$seed $(BIN)/pytest -q --timeout 0 tests/simulation/test_scheduler_at_scale.py || exit 1; done
	MRSTREAM_OPERATIONS=10000 $(BIN)/pytest -q --timeout 0 tests/cluster/test_dfs_master.py -k gate_16
	MRSTREAM_SENSELESS=400 $(BIN)/pytest -q --timeout 0 tests/cluster/test_senseless_requests.py
	$(BIN)/python tests/cluster/dfs_soak.py
	MRSTREAM_EXAMPLES=20 $(BIN)/pytest -q --timeout 0 -n 2 --dist worksteal tests/property tests/unit/lock tests/unit/streaming
	MRSTREAM_CASES=all $(BIN)/pytest -q --timeout 0 tests/conformance/test_cases_on_cluster.py
	$(BIN)/pytest -q --timeout 0 tests/doors/full_disk.py
	$(BIN)/python tests/cluster/job_soak.py --minutes $(MINUTES)
	$(BIN)/python tests/cluster/job_row.py --jobs 1000
	tests/cluster/install.sh
	$(BIN)/python tests/cluster/rounds.py --minutes $(MINUTES)
	$(BIN)/python tests/cluster/elections.py --minutes $(MINUTES)
	$(BIN)/python tests/cluster/at_boot.py
	MRSTREAM_FLAPS=40 $(BIN)/pytest -q --timeout 0 tests/cluster/test_dfs_partitions.py
	MRSTREAM_HOSTS="netns docker" $(BIN)/pytest -q --timeout 0 tests/cluster/test_*_on_hosts.py tests/cluster/test_up_and_down.py tests/cluster/test_install_and_members.py tests/cluster/test_logins.py
	MRSTREAM_FAILOVER_RACERS=3 MRSTREAM_FAILOVER_FAULTS="kill freeze cut fill kill freeze cut fill" $(BIN)/pytest -q --timeout 0 tests/cluster/test_dfs_failover_on_hosts.py
	MRSTREAM_JOB_FAULTS="kill freeze cut kill freeze cut kill freeze cut kill freeze cut" $(BIN)/pytest -q --timeout 0 tests/cluster/test_job_group.py
	for hosts in netns docker; do \
	  $(BIN)/python tests/cluster/job_soak.py --hosts $$hosts --master-kills 50 || exit 1; done

clean:
	rm -rf build dist *.egg-info $(VENV)
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
