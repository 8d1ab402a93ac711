# Two commands on a fresh machine, with python3 (>= 3.11, with venv) and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Tests of deployments wait for a third of their time: three workers keep two cores busy.
WORKERS ?= 3
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: demo test test-all bench bench-engines lint docs coverage release-check lock clean

demo: $(VENV)/core
	$(BIN)/privadmm demo

test: $(VENV)/dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-all: $(VENV)/dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "slow or not slow"

bench: $(VENV)/dev
	$(BIN)/privadmm bench

bench-engines: $(VENV)/dev
	$(BIN)/python benchmarks/bounds.py --quick
	$(BIN)/python benchmarks/shared_noise.py
	$(BIN)/python benchmarks/dask_overhead.py
	$(BIN)/python benchmarks/secure_sums.py --quick
	$(BIN)/python benchmarks/scale_model.py --quick
	$(BIN)/python benchmarks/letters.py --quick
	$(BIN)/python benchmarks/flower_overhead.py --quick

# Every picture of docs/gallery again (about ten minutes), and README's from its stored numbers; benchmarks/
# accuracy_picture.py --run measures those anew.
.PHONY: gallery
gallery: $(VENV)/dev
	for script in examples/*.py; do $(BIN)/python $$script --out runs/gallery || exit 1; done
	cp runs/gallery/*.svg docs/gallery/
	$(BIN)/python benchmarks/accuracy_picture.py

lint: $(VENV)/dev
	$(BIN)/ruff check src tests benchmarks tools examples
	$(BIN)/ruff format --check src tests benchmarks tools examples
	$(BIN)/mypy

# The site, in site/: every warning is an error, and neither building nor reading it needs a network.
docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

coverage: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov=privadmm --cov-report=term:skip-covered --cov-report=html

# What can be checked of a release offline: docs/releasing.md.
release-check: lint $(VENV)-release/done
	rm -rf dist
	$(VENV)-release/bin/python -m build --no-isolation
	$(VENV)-release/bin/python -m twine check --strict dist/*
	$(BIN)/python tools/sbom.py dist/sbom.cdx.json

$(VENV)/core: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "privadmm needs Python 3.11 or newer; try make PYTHON=python3.12")'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(VENV)/dev: $(VENV)/core requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

$(VENV)/docs: $(VENV)/core requirements-docs.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	touch $@

$(VENV)-release/done: requirements-release.txt
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-release.txt
	touch $@

lock:
	tools/lock

clean:
	rm -rf $(VENV) $(VENV)-release runs site dist htmlcov .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
