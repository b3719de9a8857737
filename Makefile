# Every target makes its own environment first; all it needs is Python 3.11, and Java 17
# for the tests with Spark.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

# Where the system's temporary directory cannot be written to, use our own.
ifneq ($(shell test -w "$${TMPDIR:-/tmp}" && echo yes),yes)
export TMPDIR := $(CURDIR)/.cache/tmp
$(shell mkdir -p "$(TMPDIR)")
endif

.PHONY: help demo java test test-unit test-all lint format soak integration bench-smoke clean

help:
	@echo "make demo         what LakeVilla does, in two minutes, on local files"
	@echo "make test         the test suite"
	@echo "make test-unit    the tests without Java or a server, in a minute or two"
	@echo "make test-all     the test suite, with thousands of random predicates over random tables"
	@echo "make lint         ruff, mypy, what may import what, and the shape of the code"
	@echo "make soak         the long runs: simulation, kills, memory"
	@echo "make integration  the suite against MinIO (built with Go) or LAKEVILLA_S3_ENDPOINT"
	@echo "make bench-smoke  a short benchmark beside deltalake and DuckLake"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/lakevilla demo

# The tests with Spark are one group, so that one worker starts one session for them.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

java:
	@tests/java.sh

test: java $(STAMP)
	$(PYTEST) -m 'not soak and not integration'

test-unit: $(STAMP)
	$(PYTEST) tests/unit

test-all: java $(STAMP)
	LAKEVILLA_ROWS=$${LAKEVILLA_ROWS:-6000} LAKEVILLA_ROWS_ON_SPARK=$${LAKEVILLA_ROWS_ON_SPARK:-300} \
		$(PYTEST) -m 'not soak and not integration'

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/shape.py lakevilla

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: java $(STAMP)
	LAKEVILLA_SOAK=1 LAKEVILLA_HISTORIES=$${LAKEVILLA_HISTORIES:-100000} \
		$(PYTEST) --timeout 0 -m 'not integration'
	$(BIN)/python bench/rewrite_memory.py --gigabytes 4 --limit-gigabytes 1.5

integration: $(STAMP)
	$(BIN)/python tests/integration/with_minio.py -- $(PYTEST) tests/contract/store tests/integration

bench-smoke: $(STAMP)
	$(BIN)/python -m bench.smoke

clean:
	rm -rf $(VENV) .cache build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
