"""Packages of an extra may be missing: everything that does not need them works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def ran(program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own; return its output."""
    command = [sys.executable, "-c", program, str(directory)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return said


WITHOUT_PYICEBERG = """
import sys
sys.modules["pyiceberg"] = None  # as if it were not installed
import lakevilla as lv
with lv.connect(sys.argv[1]) as lake:
    lake.create_table("t", [{"a": 1}])
    with lake.transaction() as txn:
        txn.update("t", {"a": "a + 1"}, where="a = 1")
    assert lake.snapshot().read("t").to_pylist() == [{"a": 2}]
    try:
        lake.create_table("u", [{"a": 1}], format="iceberg")
    except lv.InvalidOperation as error:
        print(error)
try:
    import lakevilla_testing
except ImportError as error:
    print(error)
"""


def test_delta_tables_work_without_pyiceberg(tmp_path: Path) -> None:
    said = ran(WITHOUT_PYICEBERG, tmp_path)
    assert "pip install lakevilla[iceberg]" in said.stdout
    assert "lakevilla_testing needs pyiceberg" in said.stdout


WITHOUT_THE_OTHERS = """
import sys
sys.modules.update(dict.fromkeys(("dlt", "opentelemetry", "deltalake", "sqlalchemy", "mcp")))
import lakevilla as lv
with lv.connect(sys.argv[1], on_event=lambda event: None) as lake:
    lake.create_table("t", [{"a": 1}])
    assert lake.snapshot().read("t").num_rows == 1
    print("loaded:", "pyiceberg" in sys.modules)
try:
    from lakevilla.opentelemetry import listener
except ImportError as error:
    print(error)
from lakevilla import dbapi
with dbapi.connect(sys.argv[1]) as connection:
    connection.cursor().execute("CREATE TABLE u (a BIGINT)")
try:
    import lakevilla.dbapi.sqlalchemy
except ImportError as error:
    print(error)
try:
    import lakevilla.dlt
except ImportError as error:
    print(error)
from lakevilla.cli.app import app
app(["tables", sys.argv[1]], standalone_mode=False)
for command in (["demo"], ["mcp", sys.argv[1]], ["serve", sys.argv[1], "--mcp"]):
    try:
        app(command, standalone_mode=False)
    except BaseException as exit:
        print("exit", exit.exit_code)
"""


@pytest.fixture(scope="module")
def without_the_others(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of one process that lacks them all: loading a library takes a second
    each time.
    """
    said = ran(WITHOUT_THE_OTHERS, tmp_path_factory.mktemp("lake"))
    return said.stdout + said.stderr


@pytest.mark.xdist_group("extras")
def test_missing_telemetry_is_reported_with_the_extra_that_installs_it(
    without_the_others: str,
) -> None:
    assert "pip install 'lakevilla[opentelemetry]'" in without_the_others


@pytest.mark.xdist_group("extras")
def test_pyiceberg_is_not_loaded_for_delta_tables(without_the_others: str) -> None:
    """A process that creates its first table also checks that no Iceberg table is in its place."""
    assert "loaded: False" in without_the_others


@pytest.mark.xdist_group("extras")
def test_the_cli_works_without_deltalake_and_the_demo_names_the_extra_that_it_needs(
    without_the_others: str,
) -> None:
    assert "delta" in without_the_others
    assert "pip install 'lakevilla[bench]'" in without_the_others


@pytest.mark.xdist_group("extras")
def test_connections_work_without_sqlalchemy_and_the_dialect_names_its_extra(
    without_the_others: str,
) -> None:
    assert "pip install 'lakevilla[sqlalchemy]'" in without_the_others


@pytest.mark.xdist_group("extras")
def test_the_destination_of_dlt_names_its_extra(without_the_others: str) -> None:
    assert "pip install 'lakevilla[dlt]'" in without_the_others


@pytest.mark.xdist_group("extras")
def test_commands_for_agents_name_the_extra_that_they_need(without_the_others: str) -> None:
    assert without_the_others.count("pip install 'lakevilla[mcp]'") == 2
