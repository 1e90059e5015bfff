# Everything runs in .venv, made from pyproject.toml and the pins of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test slow lint bench clean

demo: $(VENV)/train.stamp
	$(BIN)/retinabench demo

test: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow"

slow: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/docstrings.py src

bench: $(VENV)/dev.stamp
	@for file in benchmarks/*.py; do case $$file in */gpu_*|*/coverage.py|*/results.py) ;; *) echo "== $$file"; $(BIN)/python $$file || exit 1 ;; esac; done

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info

$(VENV)/train.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[train]'
	touch $@

$(VENV)/dev.stamp: $(VENV)/train.stamp
	$(INSTALL) --editable '.[train,dev]'
	touch $@
