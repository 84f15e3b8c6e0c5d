# Needs Python 3.11 or newer and make; everything else is installed into $(VENV) once.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= desopt-demo
TORCH  ?= torch==2.13.0
CPU    ?= $(if $(filter x86_64,$(shell uname -m)),x86-64-v2,generic)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test kills bits cluster torch trackers benches docs lint dist bench clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16
	@echo
	@echo "  PYTHON=python3.12  the interpreter to use       (now: $(PYTHON))"
	@echo "  VENV=folder        the virtual environment      (now: $(VENV))"
	@echo "  CPU=name           the CPU of 'make bits'        (now: $(CPU))"
	@echo "  TESTS=paths        the tests of 'make test'      (all of them, if empty)"
	@echo "  TORCH=requirement  the PyTorch of 'make torch'  (now: $(TORCH))"
	@echo "  OUT=folder         where the demo puts its plot (now: $(OUT))"

demo: $(VENV)/.demo-installed ## compare DES with the other methods on a real data set; ends in a plot
	@$(BIN)/desopt demo --out '$(OUT)'

test: $(VENV)/.dev-installed ## run the tests and the examples
	$(BIN)/python -m pytest -n auto --dist worksteal $(TESTS)

kills: $(VENV)/.dev-installed ## run the tests that kill, stop and hang real processes
	$(BIN)/python -m pytest -m kills -n auto --dist worksteal tests/engines tests/run tests/studies

bits: $(VENV)/.dev-installed ## run the tests of exact bits, compiled for another CPU
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && echo "compiling for $(CPU)" && \
	    NUMBA_CPU_NAME=$(CPU) NUMBA_CPU_FEATURES= NUMBA_CACHE_DIR="$$folder" \
	    $(BIN)/python -m pytest -m "" -n auto --dist worksteal tests/contract/test_streams.py tests/test_bits.py \
	        tests/run/test_start.py && \
	    $(BIN)/python -m pytest -m cpus -n auto --dist worksteal tests/kernels tests/run/test_choice.py

cluster: $(VENV)/.cluster-installed ## run the tests on Ray, Flower, Dask and MPI
	$(BIN)/python -m pytest tests/engines/test_ray.py tests/engines/test_flower.py \
	    tests/engines/test_flower_sites.py tests/engines/test_executor_clusters.py

torch: $(VENV)/.torch-installed ## run the tests with PyTorch
	$(BIN)/python -m pytest tests/pytorch tests/test_examples.py::test_example_runs[torch_error_rate]

trackers: $(VENV)/.trackers-installed ## run the tests with TensorBoard, MLflow and Weights & Biases
	$(BIN)/python -m pytest tests/trackers

docs: $(VENV)/.docs-installed ## build the documentation site, check it and run its code
	$(BIN)/python docs/site/build.py
	$(BIN)/python -m pytest -m docs -n auto --dist worksteal tests/site

benches: $(VENV)/.benches-installed ## run the benches of others, COCO and benchopt, for a moment
	$(BIN)/python -m pytest tests/benches

lint: $(VENV)/.dev-installed ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

dist: $(VENV)/.created ## build the archive and the wheel, check them, and try the wheel elsewhere
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python .ci/try_wheel.py dist/*.whl

bench: $(VENV)/.cluster-installed ## run the benchmarks
	@for script in $(filter-out %/estimators.py %/expensive.py %/race.py,$(wildcard benchmarks/*.py)); do \
	    echo "== $$script"; $(BIN)/python "$$script" || exit; done
	$(BIN)/desopt bench

clean: ## remove caches and outputs (the virtual environment stays)
	rm -rf build dist desopt-demo desopt-bench .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "desopt needs Python 3.11 or newer; try: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv '$(VENV)'
	@touch $@

$(VENV)/.demo-installed: pyproject.toml | $(VENV)/.created
	@echo "installing desopt into $(VENV) (once; a minute or so)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[sklearn,report]'
	@touch $@

$(VENV)/.dev-installed: pyproject.toml | $(VENV)/.created
	@echo "installing desopt and the tools for its tests into $(VENV) (once; a minute or so)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.demo-installed

# Apart from the rest: Ray and Flower are large, and Flower wants older versions of rich and typer.
$(VENV)/.cluster-installed: pyproject.toml | $(VENV)/.dev-installed
	@echo "installing Ray, Flower, Dask and MPI into $(VENV) (once; a minute or two)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,ray,flower,executors]'
	@touch $@

$(VENV)/.docs-installed: pyproject.toml | $(VENV)/.dev-installed
	@echo "installing Sphinx into $(VENV) (once; half a minute or so)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@

$(VENV)/.benches-installed: pyproject.toml | $(VENV)/.dev-installed
	@echo "installing COCO and benchopt into $(VENV) (once; a minute or so)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bbob]' benchopt
	@touch $@

$(VENV)/.trackers-installed: pyproject.toml | $(VENV)/.dev-installed
	@echo "installing TensorBoard, MLflow and Weights & Biases into $(VENV) (once; a minute or two)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,trackers]'
	@touch $@

# This release first: a range alone may take gigabytes of CUDA.
$(VENV)/.torch-installed: pyproject.toml | $(VENV)/.dev-installed
	@echo "installing PyTorch into $(VENV) (once; a minute or two)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,torch]'
	@touch $@
