# Everything runs in .venv, made from pyproject.toml and the pins of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# CI sets LOCKED=1: everything comes from locks/all.txt, by hash. A CPU build of PyTorch has another hash, so that it is not the default.
INSTALL := $(PIP) $(if $(LOCKED),--no-deps --no-build-isolation,--constraint constraints.txt)
# Workers and child processes share what is compiled.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile  # fixtures of a module once

.PHONY: demo test slow coverage torture recipes lint audit locks hooks docs docs-version pages notebooks pictures dist bench clean

demo: $(VENV)/train.stamp
	$(BIN)/retinabench demo

test: $(VENV)/dev.stamp
	$(PYTEST) -m "not slow and not recipes"

slow: $(VENV)/dev.stamp
	$(PYTEST) -m slow

coverage: $(VENV)/dev.stamp
	$(PYTEST) -m "not slow and not recipes" --cov=retinabench --cov-report=term:skip-covered --cov-report=html:build/coverage

# Try to break every command (tools/torture); the log in build/torture continues after an interruption.
MINUTES ?= 60
torture: $(VENV)/dev.stamp
	PYTHONPATH=tools OMP_NUM_THREADS=1 $(BIN)/python -m torture --minutes $(MINUTES)

# Follow every recipe of CONTRIBUTING.md in a temporary copy of the tree, then lint and test it there.
recipes: $(VENV)/dev.stamp
	$(PYTEST) -n 0 -m recipes tests/conformance/test_contributing.py

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports


# Known weaknesses of the pinned dependencies; those of our own code are found by `make lint` (rules S of ruff, which are bandit's).
audit: $(VENV)/dev.stamp
	$(INSTALL) pip-audit
	$(BIN)/python -m pip_audit --strict --requirement constraints.txt --no-deps --disable-pip

# The pins of constraints.txt with the hashes of their files, for CI and the image.
LOCK := $(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11.9
locks: $(VENV)/train.stamp
	$(INSTALL) uv
	$(LOCK) locks/all.in --output-file locks/all.txt
	echo setuptools | $(LOCK) pyproject.toml - --constraint locks/all.txt --output-file locks/scores.txt
	echo setuptools | $(LOCK) pyproject.toml - --constraint locks/all.txt --extra train --extra pretrained --output-file locks/train.txt

hooks: $(VENV)/dev.stamp
	$(BIN)/pre-commit install

docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The documentation as one version of the published site, on the branch gh-pages; mike calls mkdocs. PUSH= keeps it local.
VERSION ?= dev
PUSH ?= --push
docs-version: $(VENV)/docs.stamp
	PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/mike deploy $(PUSH) --update-aliases $(VERSION) $(ALIAS)
	test -z "$(ALIAS)" || PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/mike set-default $(PUSH) $(ALIAS)

# The pictures of docs/gallery.md, of pages and figures as they are today, in build/gallery. Needs a Chromium; minutes.
pictures: $(VENV)/train.stamp
	$(BIN)/python tools/pictures.py

# What is made of the commands, the modules and the notebooks, and kept in docs/.
pages: $(VENV)/docs.stamp
	$(BIN)/python tools/documentation.py

# The notebooks as executed .ipynb files, in build/notebooks.
notebooks: $(VENV)/docs.stamp
	mkdir -p build/notebooks
	cp examples/notebooks/*.py build/notebooks
	cd build/notebooks && ../../$(BIN)/jupytext --to ipynb --set-kernel python3 --execute *.py

dist: $(VENV)/dev.stamp
	rm -rf dist
	$(INSTALL) build
	$(BIN)/python -m build --quiet --no-isolation
	$(BIN)/python -m build --quiet --no-isolation --outdir dist/references references

bench: $(VENV)/dev.stamp
	@for file in benchmarks/*.py; do case $$file in */gpu_*|*/real*|*/interval_coverage.py|*/results.py|*/sentences.py|*baselines.py|*/toolkit.py) ;; *) echo "== $$file"; $(BIN)/python $$file || exit 1 ;; esac; done

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage src/*.egg-info

$(VENV)/train.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -z "$(LOCKED)" || $(PIP) --require-hashes --requirement locks/all.txt
	$(INSTALL) --editable '.[train]'
	touch $@

$(VENV)/docs.stamp: $(VENV)/train.stamp
	$(INSTALL) --editable ./references --editable '.[train,docs]'
	touch $@

$(VENV)/dev.stamp: $(VENV)/train.stamp
	$(INSTALL) --editable ./references --editable '.[train,dev]'
	touch $@
