# One word of setup, one word for everything. `make help` lists the words.

VENV   ?= .venv
PYTHON ?= python3
BENCH  ?=
WORKERS ?= 2
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install test lint types docs zoo bench dml wheel clean

help:  ## List these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP)  ## Make .venv and install graphfix in it, editable, with what tests and lint need

# setuptools warns of package-dir and of templates/ at every build; both are as intended.
PIP     = PYTHONWARNINGS=ignore $(BIN)/python -m pip

# --group needs pip 25.1, and a fresh venv may have an older one.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(PIP) install --quiet --editable . --group test --group lint
	@touch $@

test: $(STAMP)  ## Run the tests
	$(BIN)/python -m pytest -q -n $(WORKERS)

lint: $(STAMP)  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## Check types
	$(BIN)/mypy

docs: $(STAMP)  ## Write passes/README.md, and the table in README.md, from the docstrings
	$(BIN)/python -m graphfix.docs

zoo: $(STAMP)  ## Count what is left in a zoo of exports, with the reasons (GRAPHFIX_ZOO=folder)
	$(BIN)/python tests/zoo/counts.py

bench: $(STAMP)  ## Time graphfix beside its peers on gigabytes, into docs/ (an hour, 16 GB of disk)
	$(PIP) install --quiet --group bench
	$(BIN)/python bench/compare.py $(BENCH)

dml:  ## Set up the real DirectML under Wine in build/dml (Debian, as root; 4 minutes, 3 GB)
	dml/setup.sh

wheel: $(STAMP)  ## Build a wheel into dist/ and check what is in it
	rm -rf build/lib build/bdist.* dist
	$(PIP) wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python tests/wheel.py dist/*.whl

clean:  ## Remove what make has made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
