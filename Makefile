# SPDX-License-Identifier: GPL-3.0-or-later
# Every target makes what it needs: `make demo` and `make test` work from a fresh clone, as root on Debian.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
REQUIREMENTS := requirements/dev-py$(PYTHON_VERSION).txt
VENV := .venv
BIN := $(VENV)/bin
VENV_READY := $(VENV)/.ready-py$(PYTHON_VERSION)
# Debian package -> the command that shows it is installed
DEBIAN := systemd-container:systemd-nspawn mmdebstrap:mmdebstrap openssh-client:ssh python3-venv:/usr/share/doc/python3-venv nginx:/usr/sbin/nginx aria2:aria2c opentracker:opentracker

export PATH := $(CURDIR)/$(BIN):$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg

INTEGRATION := $(wildcard tests/integration/test_*.py)

.PHONY: help env demo demo-clean test lint unit sanity hosts-test molecule integration verdicts bench docs package requirements

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

env: $(VENV_READY) debian-packages  ## .venv from the hash-locked requirements, and the Debian packages

.PHONY: debian-packages
debian-packages:
	@missing=; for entry in $(DEBIAN); do \
	    probe=$${entry#*:}; \
	    if [[ $$probe == /* ]]; then [[ -e $$probe ]] || missing+=" $${entry%%:*}"; \
	    else command -v "$$probe" >/dev/null || missing+=" $${entry%%:*}"; fi; \
	done; \
	if [[ -n $$missing ]]; then \
	    [[ $$(id -u) == 0 ]] || { echo "make: install these Debian packages first, or run make as root:$$missing" >&2; exit 1; }; \
	    echo "== installing Debian packages:$$missing"; \
	    apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing >/dev/null; \
	fi

$(VENV_READY): $(REQUIREMENTS) | debian-packages
	@echo "== making $(VENV) for Python $(PYTHON_VERSION) from $(REQUIREMENTS)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r $(REQUIREMENTS)
	@touch $@

requirements:  ## compile requirements/dev.in again, for every supported Python, and those of the Hub's client
	for version in 3.11 3.12 3.13; do \
	    uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-header --no-annotate \
	        --python-version $$version requirements/dev.in --output-file requirements/dev-py$$version.txt; \
	done
	uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-header --no-annotate \
	    --python-version 3.11 tests/engine/hub_client.in --output-file tests/engine/hub_client.txt

# ---- the demonstration ---------------------------------------------------------------------------------------------

demo: env  ## from an empty host to an answering SGLang server, on this machine without a GPU
	@python tests/demo/demo.py up

demo-clean: env  ## remove the demo's host, mirror and state
	@python tests/demo/demo.py down
	@echo "the demo is gone; its caches stay in $${INFEROPS_CACHE:-/var/cache/inferops-serving}"

# ---- checks --------------------------------------------------------------------------------------------------------

test: lint unit sanity hosts-test molecule integration  ## everything CI runs
	@echo "== all checks passed"

lint: env  ## ruff, mypy, yamllint, ansible-lint (profile production), changelog
	@echo "== lint"
	@ruff check --quiet .
	@ruff format --check --quiet .
	@mypy --no-error-summary -p ansible_collections.inferops.serving.plugins
	@mypy --no-error-summary tools tests
	@yamllint --strict .
	@ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/collections ansible-lint -q
	@antsibull-changelog lint

unit: env  ## pytest: the planner, the store, the gate, and ansible-playbook runs without hosts
	@echo "== unit tests"
	@# many of them wait; a file stays together because of what its tests share
	@python -m pytest --quiet --numprocesses=4 --dist=loadfile tests/unit

sanity: env  ## ansible-test sanity
	@echo "== ansible-test sanity"
	@tests/sanity/run.sh

hosts-test: env  ## the test hosts themselves: made, used, ended
	@echo "== test hosts"
	@python -m pytest --quiet tests/hosts

molecule: env  ## the default scenario on a real systemd host
	@echo "== molecule"
	@molecule test

integration: env  ## the built collection and the real engine, through the roles
	@echo "== integration tests"
	@# two files at a time: while one waits for its hosts, the other uses the machine. Processes of their own and not workers
	@# of one: when they are stopped they have all the time that ending their hosts takes.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going $(addprefix run/,$(INTEGRATION))

run/%:
	@echo "== $*"
	@python -m pytest --quiet $*

VERDICTS ?= tests/fixtures/verdicts/recorded.jsonl.gz
MODELS ?= tests/fixtures/verdicts/models

verdicts: env  ## the planner's verdicts against recorded ones of the real server: make verdicts VERDICTS=file.jsonl.gz
	@python tools/verdicts.py $(VERDICTS) $(MODELS)

ENGINE ?=

bench: env  ## the speed of plan and store beside their peers, about 20 minutes: make bench ENGINE=/path/to/venv/bin/python
	@python tools/bench.py $(if $(ENGINE),--engine $(ENGINE))

docs: env  ## write docs/rules.md from the rule data
	@python tools/rules_doc.py

package: env  ## build the collection's tarball into build/
	@mkdir -p build
	@ansible-galaxy collection build --force --output-path build .
