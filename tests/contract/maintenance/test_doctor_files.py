"""``doctor(files=True)`` reports data files that are missing, truncated or replaced."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.foreign_changes import TABLE, delete_by_vector
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.tables import accounts


@pytest.fixture(params=["local", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    place = make_place(request.param, request)
    with place.connect() as lake:
        lake.create_table("t", [{"id": n} for n in range(10)])
        lake.create_table("u", [{"id": 1}])
        for number in range(5):
            lake.run(lambda txn, n=number: txn.append("t", [{"id": 100 + n}]))
    return place


def first_file(place: Place, table: str = "t") -> Path:
    return sorted(Path(place.root, table).rglob("*.parquet"))[0]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def without_magic(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4] + b"RAP1")


def with_broken_footer(path: Path) -> None:
    body = path.read_bytes()
    length = int.from_bytes(body[-8:-4], "little")
    path.write_bytes(body[: -8 - length] + b"\xff" * length + body[-8:])


def with_other_rows(path: Path) -> None:
    """Replace a file by a valid one of the same size with one more row."""
    size, rows = path.stat().st_size, pq.read_metadata(path).num_rows + 1
    small = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": range(rows)}), small, store_schema=False)
    length = int.from_bytes(small.getvalue().to_pybytes()[-8:-4], "little") + 8
    footer = small.getvalue().to_pybytes()[-length:]
    path.write_bytes(b"PAR1" + b"\0" * (size - length - 4) + footer)


@pytest.mark.parametrize(
    ("damage", "kind", "told"),
    [
        (Path.unlink, "missing_file", "is missing"),
        (cut, "damaged_file", "bytes, and the table's log says"),
        (without_magic, "damaged_file", "no Parquet footer"),
        (with_broken_footer, "damaged_file", "can't be read"),
        (with_other_rows, "damaged_file", "rows by its footer, and the table's log says"),
    ],
)
def test_a_damaged_file_is_reported_with_its_table_and_the_next_step(
    place: Place, damage: Callable[[Path], object], kind: str, told: str
) -> None:
    path = first_file(place)
    damage(path)
    with place.connect() as lake:
        assert lake.doctor().ok, "it looks at no file unless it is asked to"
        report = lake.doctor(files=True)
    assert not report.ok
    (finding,) = report.findings
    assert (finding.severity, finding.kind, finding.table) == ("error", kind, "t")
    assert finding.key is not None
    assert finding.key.endswith(path.relative_to(place.root).as_posix())
    assert told in finding.message
    assert "restore" in finding.message
    shown = CliRunner().invoke(app, ["doctor", place.root, "--files", "--json"])
    assert shown.exit_code == 1
    assert [f["key"] for f in json.loads(shown.stdout)["findings"]] == [finding.key]


def test_a_check_of_files_costs_two_requests_per_file(place: Place) -> None:
    with place.connect() as lake, inside(lake).requests.counting() as without:
        assert lake.doctor().ok
    with place.connect() as lake, inside(lake).requests.counting() as with_files:
        assert lake.doctor(files=True).findings == ()
    files = 6 + 1
    assert with_files.head - without.head == files
    # Each log is read again, and of Iceberg tables the manifests too.
    lists = 0 if place.format == "delta" else 2 * files
    assert files <= with_files.get - without.get <= files + 4 + lists
    assert (with_files.put, with_files.delete) == (0, 0)


def test_doctor_reports_damaged_and_missing_deletion_vectors(
    request: pytest.FixtureRequest,
) -> None:
    place = make_place("local", request)
    place.write(TABLE, accounts(4))
    delete_by_vector(place)
    with place.connect() as lake:
        lake.register(TABLE)
        assert lake.doctor(files=True).findings == ()
        (vector,) = Path(place.root, TABLE).rglob("deletion_vector_*.bin")
        body = bytearray(vector.read_bytes())
        body[-6] ^= 1
        vector.write_bytes(body)
        (finding,) = lake.doctor(files=True).findings
        assert (finding.kind, finding.table) == ("damaged_file", TABLE)
        assert vector.name in str(finding.key)
        vector.unlink()
        (finding,) = lake.doctor(files=True).findings
        assert vector.name in str(finding.key)


def test_doctor_reports_an_emptied_data_file_without_a_traceback(place: Place) -> None:
    first_file(place, "u").write_bytes(b"")
    report = place.connect().doctor(files=True)
    assert [f.table for f in report.findings] == ["u"]
    assert isinstance(report, lv.Report)


def test_notes_are_not_counted_among_what_must_be_mended(place: Place) -> None:
    run = CliRunner()
    assert run.invoke(app, ["maintain", place.root]).exit_code == 0
    first_file(place).unlink()
    shown = run.invoke(app, ["doctor", place.root, "--files"])
    assert shown.exit_code == 1
    assert "note" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "1 finding"
