#: demo     installs, then replays one trace under two policies, simulated and live
#: test     installs what the tests need, then runs check and all tests
#: check    linter and type checker
#: horovod  builds Horovod for torch's CPU build once, into ~/.cache/cluster-exp, and installs both
#: rpc      writes the gRPC stubs from protos/
#: certs    makes a testbed's certificates and tokens in CERTS (certs), for HOSTS=10.0.0.1,10.0.0.2
#: soak     runs the tests that take long: published numbers of the large traces, 10,000 clusters that break,
#:          masters killed at random, STORM (100000) hostile messages or files at each service and each reader
#: bench    runs benchmarks/*.py
#: clean    removes whatever was built, .venv included
#: TORCH=... is the torch that `make horovod` asks pip for, with pip's options where need be
#: PYTHON=... names the interpreter, VENV=... the environment, WORKERS=... the number of test processes
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
WORKERS ?= 2
TORCH ?= -r tests/requirements.txt

BIN := $(VENV)/bin
PROTOS := $(shell find protos -name '*.proto')
COMPILED := $(basename $(shell find cluster_exp -name '*.pxd'))
COMPILED := $(COMPILED:=.py) $(COMPILED:=.pxd)
BUILD_INPUTS := setup.cfg setup.py pyproject.toml protos/generate.py $(PROTOS) $(COMPILED)
STORM ?= 100000
SOAK := $(BIN)/pytest -q -n $(WORKERS) -o faulthandler_timeout=3600
BENCHMARKS := $(wildcard benchmarks/*.py)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
CERTS ?= certs
.PHONY: help demo test rpc check horovod certs soak bench clean

# One line a package while pip works; its errors pass unchanged.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install
HAS_PIP := $(BIN)/python -m pip --version >/dev/null 2>&1
SHORTEN := sed -n -u -e 's/^Collecting \([A-Za-z0-9_.-]*\).*/  \1/p' -e 's/^Installing collected.*/  installing/p'

help:
	@sed -n 's/^#: //p' Makefile

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "no python3 found: apt-get install python3 python3-venv" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(HAS_PIP) || "$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	@$(HAS_PIP) || { echo "making $(VENV)"; "$(PYTHON)" -m venv $(VENV); }
	@touch $@

$(VENV)/.installed: $(VENV)/.made $(BUILD_INPUTS)
	@echo "installing cluster-exp (about a minute)"
	@$(PIP) -e . | $(SHORTEN)
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed-torch $(BUILD_INPUTS)
	@echo "installing cluster-exp and its test tools (about two minutes)"
	@$(PIP) -e '.[test,workloads]' | $(SHORTEN)
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-rpc: $(VENV)/.made setup.cfg
	@echo "installing the stub generator"
	@$(PIP) -e '.[rpc]' | $(SHORTEN)
	@touch $@

$(VENV)/.installed-certs: $(VENV)/.installed
	@echo "installing what makes certificates"
	@$(PIP) -e '.[certs]' | $(SHORTEN)
	@touch $@

# Before anything else that asks for torch: pip then keeps this one.
$(VENV)/.installed-torch: $(VENV)/.made tests/requirements.txt
	@echo "installing torch"
	@$(PIP) $(TORCH) | $(SHORTEN)
	@touch $@

$(VENV)/.installed-horovod: $(VENV)/.installed-torch $(wildcard tools/horovod/*)
	@$(BIN)/python tools/horovod/build.py
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/python run.py demo

horovod: $(VENV)/.installed-horovod

rpc: $(VENV)/.installed-rpc
	@$(BIN)/python protos/generate.py

certs: $(VENV)/.installed-certs
	@test -n "$(HOSTS)" || { echo "make certs HOSTS=HOST[,HOST...]: names or addresses of the testbed's hosts" >&2; exit 1; }
	@$(BIN)/python run.py certs --out "$(CERTS)" --hosts "$(HOSTS)"

check: $(VENV)/.installed-test
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet . && echo "ruff: clean"
	@$(BIN)/mypy

test: check $(VENV)/.installed-horovod
	@rm -f .coverage .coverage.*
	@echo "tests, $(WORKERS) at a time"
	@$(BIN)/pytest -q -n $(WORKERS) -m "not live and not horovod and not soak and not (published and slow)" --cov --cov-report=
	@echo "live tests, one at a time: they measure wall time, or start processes that need the cores"
	@$(BIN)/pytest -q -m "(live or horovod) and not soak" --cov --cov-append --cov-report=term:skip-covered

soak: $(VENV)/.installed-test
	@$(SOAK) -m "soak or (published and slow)"
	@echo "$(STORM) hostile messages or files at each service and each reader"
	@CLUSTER_EXP_STORM=$(STORM) $(SOAK) tests/property/test_storm_readers.py tests/runtime/test_storm_services.py

ifneq ($(BENCHMARKS),)
bench: $(VENV)/.installed
	@for file in $(BENCHMARKS); do echo "== $$file"; $(BIN)/python $$file; done
endif

clean:
	@rm -rf $(VENV) build dist *.egg-info .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
	@find cluster_exp -name '*_pb2.py' -o -name '*_pb2.pyi' -o -name '*_pb2_grpc.py' -o -name '*.so' | xargs -r rm -f
