# Everything a newcomer needs: Python 3.11 or newer, pip, git and make. `make demo` and `make test` install the rest
# into .venv and .make; system packages only where a test truly needs them, and they say so.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PX := .make/px-installed
STAMP := .make/installed
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: help demo test test-all bench lint format docs site pictures dist release clean

help:
	@echo "make demo      run the main job for real and show the result"
	@echo "make test      lint, types and all ordinary tests (what CI runs)"
	@echo "make test-all  the long tests too"
	@echo "make site      the documentation as a site, in .make/site"
	@echo "make pictures  run the commands of the pictures of terminals, and draw them"
	@echo "make dist      the wheel and the sdist of what is committed, in dist"
	@echo "make release VERSION=1.2.3   version, changelog, commit, tag and dist; pushing the tag publishes"
	@echo "make bench     side-by-side benchmarks, as ratios"
	@echo "make lint      ruff and mypy only"
	@echo "make docs      write what is made from data and parsers: reference pages, manual pages, completions"

# venv without ensurepip, because Debian ships that in a package of its own; the system's pip installs into it. It brings
# uv, which px needs anyway, and uv brings the rest: pip takes minutes for it. Where uv cannot (an index that only pip
# is configured for), pip does.
PIP = $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check
UV = $(BIN)/uv pip install --quiet --native-tls --python $(BIN)/python

$(PX): pyproject.toml
	@mkdir -p .make
	test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	$(PIP) 'uv>=0.9,<1'
	$(UV) -e . || $(PIP) -e .
	@touch $@

$(STAMP): $(PX)
	$(UV) -e '.[dev]' || $(PIP) -e '.[dev]'
	@touch $@

demo: $(PX)
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(PYTEST) -m "not slow" tests

test-all: lint
	$(PYTEST) tests

bench: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench

format: $(STAMP)
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m docs.generate

site: $(STAMP)
	$(UV) -e '.[dev,site]' || $(PIP) -e '.[dev,site]'
	$(BIN)/python -m docs.site .make/site

pictures: $(STAMP)
	$(UV) -e '.[dev,site]' || $(PIP) -e '.[dev,site]'
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m docs.pictures

dist: $(STAMP)
	$(BIN)/python tools/release.py

release: $(STAMP)
	$(BIN)/python tools/release.py $(VERSION)

clean:
	rm -rf $(VENV) .make build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
