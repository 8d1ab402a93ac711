# Two commands on a fresh machine, with python3 (>= 3.11, with venv) and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Tests of deployments wait for a third of their time: three workers keep two cores busy.
WORKERS ?= 3
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: demo test test-all bench bench-engines lint lock clean

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

lint: $(VENV)/dev
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/mypy

$(VENV)/core: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "privadmm needs Python 3.11 or newer; try make PYTHON=python3.12")'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(VENV)/dev: $(VENV)/core requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

lock:
	tools/lock

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
