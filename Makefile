# Two commands on a fresh machine: `make bench` prints a result table, `make test` runs the whole test suite.
# Only Python >= 3.11 and make are assumed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: bench test test-fast lint format clean

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "RetargetBench needs Python 3.11 or newer; set PYTHON=...")'
	@echo "installing into $(VENV); this takes a few minutes the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

bench: $(INSTALLED)
	$(BIN)/bench run --methods copy --split all

test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

test-fast: $(INSTALLED)
	$(BIN)/python -m pytest -n auto -m 'not slow' $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist
