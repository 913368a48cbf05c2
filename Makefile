# `make quickstart` and `make test` need git, make and Python 3.11 to 3.13; everything else comes into VENV.
VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
INSTALL = $(VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable
# pip leaves byte code to the first process that imports a module. Where none is kept, each process compiles all of Ray.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test lint docs architecture changelog install chromium clean

install: $(VENV)/.compiled

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 to 3.13 is needed; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing rllib-scale and what it needs into $(VENV)"
	$(INSTALL) .
	@touch $@

$(VENV)/.compiled: $(VENV)/.installed
	$(VENV)/bin/rllib-scale doctor --compile
	@touch $@

$(VENV)/.installed-test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) '.[dev]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test

quickstart: $(VENV)/.compiled
	$(VENV)/bin/rllib-scale sweep quickstart

# The browser tests open pages in the system's Chromium; nothing is done where there is one.
chromium:
	@test -n "$$CHROMIUM" || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } || \
		{ echo "No Chromium and no right to install it: install it, or set CHROMIUM=/path/to/it"; exit 2; }

# Two files at a time, those that start Ray or a browser first; what is in one file shares its fixtures.
test: $(VENV)/.installed-test chromium
	$(VENV)/bin/python -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(VENV)/bin/towncrier build --draft --version next > /dev/null

# -W: a warning, as of a link that leads nowhere, is an error.
docs: $(VENV)/.installed-docs
	$(VENV)/bin/python -m sphinx -W --keep-going -q -b html -c docs . build/docs
	@echo "open build/docs/index.html"

# The picture in CONTRIBUTING.md.
architecture: $(VENV)/bin/python
	$(VENV)/bin/python docs/architecture.py

# At a release: the files of changes/ become the section of this version in CHANGELOG.md.
changelog: $(VENV)/.installed-dev
	$(VENV)/bin/towncrier build --yes --version $$($(VENV)/bin/python -c 'import rllib_scale; print(rllib_scale.__version__)')

clean:
	rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
