"""What an extra brings may be missing: all that does without it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def ran(program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """What a program says that a process of its own runs to its end."""
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


def test_delta_tables_need_no_pyiceberg(tmp_path: Path) -> None:
    said = ran(WITHOUT_PYICEBERG, tmp_path)
    assert "pip install lakevilla[iceberg]" in said.stdout
    assert "lakevilla_testing needs pyiceberg" in said.stdout


WITHOUT_OPENTELEMETRY = """
import sys
sys.modules["opentelemetry"] = None
import lakevilla as lv
with lv.connect(sys.argv[1], on_event=lambda event: None) as lake:
    lake.create_table("t", [{"a": 1}])
try:
    from lakevilla.opentelemetry import listener
except ImportError as error:
    print(error)
"""


def test_missing_telemetry_is_reported_with_the_extra_that_brings_it(tmp_path: Path) -> None:
    said = ran(WITHOUT_OPENTELEMETRY, tmp_path)
    assert "pip install 'lakevilla[opentelemetry]'" in said.stdout


WITHOUT_DELTALAKE = """
import sys
sys.modules["deltalake"] = None
import lakevilla as lv
with lv.connect(sys.argv[1]) as lake:
    lake.create_table("t", [{"a": 1}])
    assert lake.snapshot().read("t").num_rows == 1
from lakevilla.cli.app import app
app(["tables", sys.argv[1]], standalone_mode=False)
try:
    app(["demo"], standalone_mode=False)
except BaseException as exit:
    print("exit", exit.exit_code)
"""


def test_tables_are_shown_without_deltalake_and_the_demo_names_the_extra_that_it_needs(
    tmp_path: Path,
) -> None:
    said = ran(WITHOUT_DELTALAKE, tmp_path)
    assert "delta" in said.stdout
    assert "pip install 'lakevilla[bench]'" in said.stdout + said.stderr


WITHOUT_SQLALCHEMY = """
import sys
sys.modules["sqlalchemy"] = None
from lakevilla import dbapi
with dbapi.connect(sys.argv[1]) as connection:
    connection.cursor().execute("CREATE TABLE t (a BIGINT)")
try:
    import lakevilla.dbapi.sqlalchemy
except ImportError as error:
    print(error)
"""


def test_connections_need_no_sqlalchemy_and_the_dialect_names_its_extra(tmp_path: Path) -> None:
    said = ran(WITHOUT_SQLALCHEMY, tmp_path)
    assert "pip install 'lakevilla[sqlalchemy]'" in said.stdout
