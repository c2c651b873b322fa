# One word of setup, one word for everything. `make help` lists the words.

VENV   ?= .venv
PYTHON ?= python3
BENCH  ?=
COMPARE ?=
RENT   ?=
WORKERS ?= 2
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install test test-rest test-all lowest lint graphs fuzz conformance types docs site zoo times counts kernels mutants faults bench rent compare dml webgpu hosts windows edges survey wheel clean

help:  ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP)  ## Make .venv and install graphfix in it, editable, with what tests and lint need

# setuptools warns of package-dir and of templates/ at every build; both are as intended.
PIP     = PYTHONWARNINGS=ignore $(BIN)/python -m pip

# --group needs pip 25.1, and a fresh venv may have an older one.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(PIP) install --quiet --editable . --group test --group lint
	@touch $@

# The markers are explained in pyproject.toml.
REST = dml or webgpu or exports or fuzz or process
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS)

test: $(STAMP)  ## Run the tests of the core (4 minutes on two cores)
	$(PYTEST) -m "not ($(REST))"

test-rest: $(STAMP)  ## Run the tests that test leaves: processes, malformed models, exports, DirectML
	$(PYTEST) -m "$(REST)"

test-all: $(STAMP)  ## Run every test
	$(PYTEST)

GRAPHS ?= 5000
graphs: $(STAMP)  ## Hold rules, shapes and passes against ONNX Runtime on generated graphs (GRAPHS=5000)
	GRAPHFIX_GRAPHS=$(GRAPHS) $(BIN)/python -m pytest -q -n $(WORKERS) tests/lengths tests/facts \
		tests/passes/test_every_pass_generated.py

FUZZ ?= 5000
fuzz: $(STAMP)  ## Make one fault in so many valid models, for check and run (FUZZ=5000)
	GRAPHFIX_FUZZ=$(FUZZ) $(BIN)/python -m pytest -q tests/hostile/test_corrupted.py

conformance: $(STAMP)  ## Put all of ONNX's own tests through every pass, into docs/ (half an hour)
	$(BIN)/python -m tests.conformance.survey --page --workers $(WORKERS)

# The lower bounds in pyproject.toml are true: tested before a release.
lowest: $(STAMP)  ## Run make test with the lowest versions of all dependencies, in .venv-lowest
	$(PIP) install --quiet 'uv>=0.7'
	$(BIN)/uv venv --quiet --clear .venv-lowest
	$(BIN)/uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable . --group test
	.venv-lowest/bin/python -m pytest -q -n $(WORKERS) -m "not ($(REST))"

lint: $(STAMP)  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## Check types
	$(BIN)/mypy

docs: $(STAMP)  ## Write passes/README.md and docs/rules.md
	$(BIN)/python -m graphfix.show.manual_pages

# Links that lead nowhere and whatever else Sphinx warns of are errors (-W, -n).
site: $(STAMP)  ## Make the pages of docs/ a site in build/site
	$(PIP) install --quiet --group site
	$(BIN)/python -m sphinx -W --keep-going -n -q -E -b html -c docs . build/site

# graphfix knows by content what has to be done again, and works on as many models at a time as make
# may. A model that fails leaves its row all the same and stops no other.
EP      ?= cpu
ZOO      = $(BIN)/graphfix zoo --ep $(EP)
JOBS     = $(filter-out -j,$(filter -j%,$(MAKEFLAGS)))

zoo: $(STAMP)  ## Repair, check, run and time models/; EP=dml for DirectML, -j2 for two at a time
	$(ZOO) $(JOBS)

times: $(STAMP)  ## Time models/ for longer, one at a time, for narrower intervals; EP=dml for DirectML
	$(ZOO) --careful

counts: $(STAMP)  ## Count what is left in a zoo of exports, with the reasons (GRAPHFIX_ZOO=folder)
	$(BIN)/python tests/exports/counts.py

mutants: $(STAMP)  ## Plant faults in repaired graphs and count what verify tells, into docs/ (GRAPHFIX_ZOO)
	$(BIN)/python tests/mutants/survey.py --page

FAULTS ?= 200
faults: $(STAMP)  ## Plant faults in the code at random and count those that the nearest tests notice (FAULTS=200)
	$(PIP) install --quiet --group faults
	$(BIN)/python -m tests.faults.plant --count $(FAULTS)

kernels: $(STAMP)  ## Count the kernels of models/ and draw the picture of docs/fast.md
	$(PIP) install --quiet --group bench
	$(BIN)/python bench/kernels.py

bench: $(STAMP)  ## Time graphfix beside its peers on gigabytes, into docs/ (an hour, 16 GB of disk)
	$(PIP) install --quiet --group bench
	$(BIN)/python bench/compare.py $(BENCH)

rent: $(STAMP)  ## Export 170 families and measure what each fusion pays, into build/rent/ (an hour)
	$(PIP) install --quiet --group families
	$(BIN)/python -m bench.families.export
	$(BIN)/python -m bench.rent $(RENT)

# The other tools bring torch and more, and have a Python of their own. What was found is kept in
# build/compare: a run that was stopped goes on where it was.
PEERS = build/peers/.installed

$(PEERS): pyproject.toml
	$(PYTHON) -m venv build/peers
	build/peers/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	build/peers/bin/python -m pip install --quiet --group peers
	@touch $@

compare: $(STAMP) $(PEERS)  ## Hold graphfix against its peers over 40 exports, into README and docs/ (an hour; GRAPHFIX_ZOO=folder)
	$(PIP) install --quiet --group bench
	$(BIN)/python bench/side_by_side.py $(COMPARE)
	$(BIN)/python bench/picture.py

dml:  ## Set up the real DirectML under Wine in build/dml (Debian, as root; 4 minutes, 3 GB)
	dml/setup.sh

webgpu:  ## Set up a Python with WebGPU in build/webgpu, on a software device if need be (Debian)
	PYTHON=$(PYTHON) webgpu/setup.sh

hosts:  ## Fetch what the tests of docs/hosts need into build/hosts (npm, Debian's packages; 500 MB)
	tests/shipped/hosts/setup.sh

WINDOWS ?= tests
windows: $(STAMP)  ## Run the tests natively in the Windows Python of make dml (WINDOWS="tests/files tests/cli")
	$(PIP) install --quiet 'uv>=0.7'
	UV=$(BIN)/uv dml/windows.sh $(WINDOWS)

# What was run is kept in build/edges and build/survey: a run that was stopped goes on where it was.
SURVEYED ?= directml windowsml webgpu
edges: $(STAMP)  ## Run every operator at edge values on both DirectMLs and WebGPU (SURVEYED=webgpu)
	for x in $(SURVEYED); do $(BIN)/python -m tests.survey.edges --ep $$x || exit; done

survey: $(STAMP)  ## Run a case of each kind of each operator on both DirectMLs and WebGPU (an hour)
	for x in $(SURVEYED); do $(BIN)/python -m tests.survey.run --ep $$x || exit; done

wheel: $(STAMP)  ## Build a wheel into dist/ and check what is in it
	rm -rf build/lib build/bdist.* dist
	$(PIP) wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python tests/wheel.py dist/*.whl

clean:  ## Remove what make has made
	rm -rf $(VENV) .venv-lowest build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
