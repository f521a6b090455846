# Every target does its own set-up: a .venv, filled by pip under constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Bytecode is made afterwards, on all cores; pip would make it on one.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

# Options of xcal demo, as in: make demo DEMO="--dataset metabric"
DEMO   ?=

.PHONY: demo test test-ci test-floats lint format docs bench environment clean help

help:
	@echo "make demo    a model that cannot be trusted and what corrects it, pages under runs/ (DEMO=\"--dataset metabric\" for options)"
	@echo "make test    the test suite, doctests included, in about five minutes"
	@echo "make test-ci  the other tests: a browser, compilers, a built wheel, several processes, pages that train, many data sets"
	@echo "make test-floats  the tests most sensitive to rounding, without vector instructions and with four threads"
	@echo "make lint    ruff, mypy and the import contracts"
	@echo "make docs    the documentation, into docs/_build/html"
	@echo "make environment  .venv for lint, docs and test, by one installation"
	@echo "make bench   every claim of speed and memory, as ratios"

# One stamp for each set of extras: an unchanged pyproject.toml installs nothing again.
$(VENV)/.stamp-%: pyproject.toml paper/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[$*]" -e paper
	@# An outside reference that works with numpy 2 but declares numpy < 2.
	@case "$*" in *test*) $(PIP) --no-deps survival-evaluation==0.1.3;; esac
	@# Not the tests of other packages. Templates that are no Python are left alone, as pip does.
	@$(BIN)/python -m compileall -qq -j 0 -x /tests/ $(VENV)/lib || true
	@touch $@

# What lint, docs and test need, by one installation instead of three. After it they install nothing.
environment: $(VENV)/.stamp-lint,docs,test
	@touch $(VENV)/.stamp-lint $(VENV)/.stamp-docs $(VENV)/.stamp-test

demo: $(VENV)/.stamp-datasets
	$(BIN)/xcal demo $(DEMO)

test: $(VENV)/.stamp-test
	@# Two workers with one thread each: more threads than cores make small tensor operations wait for each other.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not ci" -n 2 --dist loadfile

# What a change rarely breaks and what takes long: the tests with the marker ci. With make test, the whole suite.
test-ci: $(VENV)/.stamp-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests paper/tests -m ci -n 2 --dist loadfile

# The other extreme of what a CPU can be: no vector instructions, and more threads than most have cores. Models are
# trained and compared here, so that sums in another order show.
FLOATS := tests/estimators tests/training tests/networks tests/objectives tests/recalibration
test-floats: $(VENV)/.stamp-test
	@# Passive: a thread that has nothing to do sleeps. By default it keeps its core busy, which here another one needs.
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=4 OMP_WAIT_POLICY=passive \
		$(BIN)/python -m pytest $(FLOATS) -m "not ci" -n 2 --dist loadfile \
		--ignore tests/estimators/test_sklearn_checks.py --ignore tests/recalibration/test_sklearn_checks.py \
		--ignore tests/estimators/test_frontier_page.py --ignore tests/training/test_across_processes.py \
		--ignore tests/estimators/test_forged_files.py --ignore tests/estimators/test_composition.py \
		--ignore tests/training/test_checkpoints.py --ignore tests/training/test_fingerprint.py --shuffle 1

lint: $(VENV)/.stamp-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.stamp-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.stamp-docs
	@# One thread, as for the tests: the examples train small models.
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/.stamp-bench
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) docs/_build docs/_generated docs/gallery docs/paper docs/records docs/studies runs .pytest_cache .mypy_cache .ruff_cache
