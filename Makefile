# Needs make, a package index and a Python from 3.11 on with venv; everything else is built in .uv and .venv.

# The newest Python that works here. `make PYTHON=/path/to/python3.12 test` takes another one;
# remove .uv and .venv first if they were built with a different one.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)
UV_VERSION := 0.13.9
AIRFLOW_32 := 3.2.2
BIN := .venv/bin
READY := .venv/.synced

# Folders that hold Python files; the linters refuse to be sent to one that holds none.
CHECKED := src tests dags assets/src $(foreach folder,examples benchmarks,$(if $(wildcard $(folder)/*.py),$(folder)))

.PHONY: help test test-airflow test-airflow-32 test-celery lint format demo bench coverage proof fuzz audit
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

test: $(READY) ## all tests, offline; those that need a missing system package are skipped
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test-airflow: $(READY) ## a real Airflow: kills, restarts, a browser; takes minutes
	CORPUSMILL_AIRFLOW_STACK=1 $(BIN)/python -m pytest tests/airflow/test_stack.py

# Airflow 3.2 does not work with the FastAPI and the SQLAlchemy of today; whoever runs it has those of its time, and so
# has this. What we need that is younger is named.
test-airflow-32: $(READY) ## what of the provider works on Airflow 3.2, in an environment of its own
	.uv/bin/uv venv --quiet --clear --python .uv/bin/python .venv-airflow32
	.uv/bin/uv pip install --quiet --python .venv-airflow32/bin/python \
		--exclude-newer 2026-07-01 --exclude-newer-package py3langid=2026-10-01 \
		-e '.[airflow,postgres,sagemaker,testing]' 'apache-airflow==$(AIRFLOW_32)' \
		'apache-airflow-providers-openlineage>=2.18' 'hypothesis>=6.120' 'moto[s3,server]>=5.1' 'pytest>=8.3' \
		'pytest-timeout>=2.3'
	.venv-airflow32/bin/python -m pytest tests/airflow --timeout 600

test-celery: $(READY) ## Airflow with Celery workers that share no disk; needs redis-server
	CORPUSMILL_AIRFLOW_CELERY=1 $(BIN)/python -m pytest tests/airflow/test_celery.py

lint: $(READY) ## style, formatting, types, rules of import
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy --strict $(CHECKED)
	$(BIN)/lint-imports

format: $(READY) ## put files into the form that lint asks for
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

demo: $(READY) ## a corpus through the local fake endpoint, from Parquet to Parquet
	$(BIN)/python examples/demo.py

bench: $(READY) ## measure again what the README states
	UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=.venv .uv/bin/uv sync --frozen --inexact --group bench \
		--python .uv/bin/python
	$(BIN)/python -m benchmarks.run

coverage: $(READY) ## which lines and branches the tests reach
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

proof: $(READY) ## the long proofs of docs/reliability.md; takes about an hour
	$(BIN)/python benchmarks/kills.py
	$(BIN)/python benchmarks/chaos.py
	$(BIN)/python benchmarks/storm.py
	$(BIN)/python benchmarks/bad_data.py

# What searches is no part of the environment that the lockfile names: it lies beside it.
fuzz: $(READY) ## look for bytes that break the parsers of streams
	.uv/bin/uv pip install --quiet --python $(BIN)/python --target .fuzz 'atheris>=3,<4'
	PYTHONPATH=.fuzz $(BIN)/python benchmarks/fuzz.py

audit: .uv/version-$(UV_VERSION) ## known vulnerabilities of what the lockfile names, where the database can be asked
	.ci/audit

# uv lives in an environment of its own, so that .venv holds what the lockfile says and nothing else.
.uv/version-$(UV_VERSION):
	@test -n "$(PYTHON)" || { echo "No Python from 3.11 on with venv was found; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	"$(PYTHON)" -m venv --clear .uv
	.uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(READY): pyproject.toml uv.lock .uv/version-$(UV_VERSION)
	UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=.venv .uv/bin/uv sync --frozen --python .uv/bin/python
	@touch $@
