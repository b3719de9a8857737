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

# Compiled modules are kept, as they are where LakeVilla is installed: else each process that a test
# starts compiles all of them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo java azurite test test-unit test-failed test-slices test-all spark-versions versions integrations rck models porcupine atheris prove lint format soak clouds integration bench-smoke docs docs-check clean

help:
	@echo "make demo         what LakeVilla does, in half a minute, on local files"
	@echo "make test         nearly every test function with a few of its cases, in 10 to 16 minutes"
	@echo "make test-unit    the tests without Java or a server, in a minute or two"
	@echo "make test-failed  what failed in the run before, once more, one after the other"
	@echo "make test-all     every case and the whole random search, in some four hours"
	@echo "make test-slices  the same in a fixed order from SLICE on, for MINUTES (20) minutes"
	@echo "make spark-versions  the tests of Spark with other versions of it (SPARKS, SPARK_TESTS)"
	@echo "make versions     the tests of rows with the newest, or oldest, of each dependency (COLUMN)"
	@echo "make integrations  the guides and tests of tools (TOOL=polars), with their last two releases"
	@echo "make rck          Apache Iceberg's compatibility kit against lakevilla serve, in a minute"
	@echo "make models       the explicit-state models of the protocols, with their planted flaws"
	@echo "make prove        the campaign of all searches for faults, for HOURS (1), with a report"
	@echo "make atheris      what guides the campaign's fuzzing by coverage, in .cache; not for every Python"
	@echo "make porcupine    Porcupine on the histories of a directory (HISTORIES), built with Go in .cache"
	@echo "make lint         ruff, mypy, what may import what, and the shape of the code"
	@echo "make docs         the documentation site, in .cache/site; a broken link fails"
	@echo "make docs-check   each page of it, and of the gateway, in a headless Chromium, at phone and desk width"
	@echo "make soak         the long runs: simulation, kills, memory"
	@echo "make clouds       the contracts on Azurite (npm), as \`make test-all\` has them in memory"
	@echo "make integration  the suite against MinIO (built with Go) or LAKEVILLA_S3_ENDPOINT"
	@echo "make bench-smoke  a short benchmark beside deltalake and DuckLake"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench,docs]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/lakevilla demo

# The tests with Spark are one group, so that one worker starts one session for them.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

java:
	@tests/java.sh

# The server of the tests of Azure, in the user's cache; without npm these leave it out.
azurite: $(STAMP)
	@$(BIN)/python -m tests.fixtures.azurite

SUITE := $(PYTEST) -m 'not soak and not integration'
# What `make test-slices` begins with, and for how long no more tests start.
SLICE ?= 0
MINUTES ?= 20

test: java $(STAMP)
	$(SUITE) --cases few

test-unit: $(STAMP)
	$(PYTEST) tests/unit

test-failed: java $(STAMP)
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --exitfirst

test-slices: java azurite $(STAMP)
	$(SUITE) --search whole --slice $(SLICE) --minutes $(MINUTES)

test-all: java azurite $(STAMP)
	$(SUITE) --search whole --seeds today

# Other versions of PySpark than that of constraints.txt; each lies before the environment's own.
SPARKS ?= 4.0.5 4.2.1 4.3.0
SPARK_TESTS ?= tests/contract/spark
OTHERS := $(CURDIR)/.cache/pyspark

$(OTHERS)/%: | $(STAMP)
	rm -rf $@.new
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@.new pyspark==$*
	mv $@.new $@

spark-versions: java $(STAMP) $(SPARKS:%=$(OTHERS)/%)
	for version in $(SPARKS); do \
		PYTHONPATH=$(OTHERS)/$$version SPARK_HOME=$(OTHERS)/$$version/pyspark \
			$(BIN)/python -m pytest $(SPARK_TESTS) || exit; \
	done

# Other versions of what rows are read and written with, in an environment below .cache.
COLUMN ?= newest
VERSIONS_ARGS ?=

versions: $(STAMP)
	$(BIN)/python -m tests.versions $(COLUMN) -n $(WORKERS) --dist loadgroup $(VERSIONS_ARGS)

# A tool's guide and tests, in an environment that the guide's install line makes below .cache.
TOOL ?=

integrations: $(STAMP)
	$(BIN)/python -m tests.integrations $(TOOL) $(if $(TURN),--turn $(TURN)) $(if $(FOR),--minutes $(FOR)) $(if $(ARGS),--args="$(ARGS)")

rck: java $(STAMP)
	$(BIN)/python -m tests.rck.run

models: $(STAMP)
	$(BIN)/python -m models

# Builds what checks histories with Porcupine, and has it check those of a directory. Where Go is
# missing, nothing is built, and what needs it is left out.
HISTORIES ?=

porcupine: $(STAMP)
	@$(BIN)/python -m tests.support.porcupine $(HISTORIES)

# What guides fuzzing by coverage is no part of the environment: it has no wheel for some versions of
# Python (3.14), and there its layer is left out.
atheris: $(STAMP)
	@directory=.cache/atheris-$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	test -d $$directory || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--only-binary :all: --target $$directory atheris==3.0.0 || echo "atheris can't be installed here"

# Each run goes on where the one before has stopped; NEW=1 begins anew.
HOURS ?= 1
LAYERS ?=
PLANTED ?=
NEW ?=

prove: java azurite atheris $(STAMP)
	$(BIN)/python -m tests.prove --hours $(HOURS) $(if $(LAYERS),--layers $(LAYERS)) $(if $(PLANTED),--planted $(PLANTED)) $(if $(FIRST),--first) $(if $(NEW),--new)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/shape.py lakevilla
	$(BIN)/python -m tests.support.quarantine

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: java azurite $(STAMP)
	$(PYTEST) --timeout 0 -m 'not integration' --search soak --seeds today
	$(BIN)/lakevilla bench run rewrite -p gigabytes=4 -p limit_gb=1.5 -p repeats=1 -p systems=LakeVilla

# The contracts on a server that `make test-all` runs them on in part only (CLOUDS: which).
CLOUDS ?= azurite

clouds: azurite $(STAMP)
	for server in $(CLOUDS); do \
		$(PYTEST) --server $$server -k "memory or remote" tests/contract/recovery \
			tests/contract/queues tests/contract/refs tests/contract/maintenance || exit; \
	done

integration: $(STAMP)
	$(BIN)/python tests/integration/with_minio.py -- $(PYTEST) tests/contract/store tests/integration

bench-smoke: $(STAMP)
	$(BIN)/lakevilla bench run smoke many_files

# Not --quiet: warnings that are not shown are not counted, and a broken link would pass.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-check: docs
	$(BIN)/python tests/docs/look.py .cache/site
	$(BIN)/python tests/docs/look_at_gateway.py

clean:
	rm -rf $(VENV) .cache build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
