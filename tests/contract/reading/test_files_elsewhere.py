"""A table's files outside its lake are read only from places that the caller allows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import lakevilla as lv
from lakevilla.store.base import ANY
from lakevilla.store.effects import put
from tests.support.inside import inside
from tests.support.places import make_place

OWN = pa.table({"n": ["own"]})
PRIVATE = pa.table({"n": ["private"]})


def private_file(directory: Path, name: str = "private file.parquet") -> Path:
    directory.mkdir(exist_ok=True)
    pq.write_table(PRIVATE, directory / name)
    return directory / name


def add_to_log(table: Path, path: str, size: int, **more: Any) -> None:
    """Add a file to a table's log, as any client that may write the log can."""
    logs = sorted((table / "_delta_log").glob("*.json"))
    add = {
        "path": path,
        "partitionValues": {},
        "size": size,
        "modificationTime": 1,
        "dataChange": True,
        **more,
    }
    entry = table / "_delta_log" / f"{len(logs):020}.json"
    entry.write_text(json.dumps({"add": add}))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Make a table in a lake whose log names a file outside the lake."""
    write_deltalake(str(tmp_path / "lake" / "t"), OWN)
    file = private_file(tmp_path / "elsewhere")
    add_to_log(tmp_path / "lake" / "t", str(file).replace(" ", "%20"), file.stat().st_size)
    return tmp_path / "lake" / "t"


VERBS: dict[str, Callable[[lv.Lake], Any]] = {
    "read": lambda lake: lake.read("t"),
    "read of some rows": lambda lake: lake.read("t", where="n = 'private'"),
    "scan": lambda lake: lake.run(lambda txn: txn.scan("t").read_all()),
    "sql": lambda lake: lake.sql("SELECT * FROM t"),
    "count": lambda lake: lake.sql("SELECT count(*) FROM t WHERE n > 'a'"),
    "insert": lambda lake: lake.run(lambda txn: txn.sql("INSERT INTO t SELECT n || '2' FROM t")),
    "create": lambda lake: lake.session().sql("CREATE TABLE u AS SELECT * FROM t"),
    "update": lambda lake: lake.run(lambda txn: txn.update("t", {"n": "'x'"}, where="n > 'a'")),
    "delete": lambda lake: lake.run(lambda txn: txn.delete("t", where="n > 'p'")),
    "upsert": lambda lake: lake.run(lambda txn: txn.upsert("t", [{"n": "private"}], keys=["n"])),
    "merge": lambda lake: lake.run(
        lambda txn: txn.sql(
            "MERGE INTO t USING (SELECT 'private' AS k) AS s ON t.n = s.k WHEN MATCHED THEN DELETE"
        )
    ),
    "optimize": lambda lake: lake.table("t").optimize(),
    "z-order": lambda lake: lake.table("t").optimize(z_order_by=["n"]),
    "past": lambda lake: lake.table("t").read(version=1),
    "export": lambda lake: lake.export("t", f"{lake.root}-out", copy=True),
}


@pytest.mark.parametrize("verb", [*VERBS])
def test_no_verb_reads_a_file_outside_the_lake_without_permission(table: Path, verb: str) -> None:
    with lv.connect(table.parent) as lake:
        with pytest.raises(lv.InvalidOperation) as refused:
            VERBS[verb](lake)

    message, directory = str(refused.value), str(table.parent.parent / "elsewhere")
    assert "table t" in message or " t: " in message
    assert f"{directory}/private file.parquet" in message
    assert f"files_outside=[{directory!r}]" in message
    assert pq.ParquetDataset(list(table.glob("*.parquet"))).read()["n"].to_pylist() == ["own"]


@pytest.mark.parametrize("start", ["", "file://", "file:", "file://localhost"])
def test_a_file_outside_the_lake_is_refused_however_its_path_is_spelled(
    tmp_path: Path, start: str
) -> None:
    write_deltalake(str(tmp_path / "lake" / "t"), OWN)
    file = private_file(tmp_path / "elsewhere", "a.parquet")
    add_to_log(tmp_path / "lake" / "t", f"{start}{file}", file.stat().st_size)

    with pytest.raises(lv.InvalidOperation, match="files_outside"):
        lv.connect(tmp_path / "lake").read("t")


@pytest.mark.parametrize("path", ["../../elsewhere/a.parquet", "%2e%2e/%2e%2e/elsewhere/a.parquet"])
def test_a_file_path_with_parent_steps_cannot_leave_the_lake(tmp_path: Path, path: str) -> None:
    write_deltalake(str(tmp_path / "lake" / "t"), OWN)
    file = private_file(tmp_path / "elsewhere", "a.parquet")
    for spelled in (path, f"{tmp_path}/lake/t/{path}"):
        add_to_log(tmp_path / "lake" / "t", spelled, file.stat().st_size)
        with pytest.raises(lv.LakeVillaError):
            lv.connect(tmp_path / "lake", files_outside=[str(tmp_path / "lake")]).read("t")


@pytest.mark.parametrize("path", ["x/" * 3000 + "a.parquet", "y" * 300], ids=["path", "name"])
def test_a_file_with_a_name_that_is_too_long_is_reported(tmp_path: Path, path: str) -> None:
    write_deltalake(str(tmp_path / "lake" / "t"), OWN)
    add_to_log(tmp_path / "lake" / "t", path, 500)
    with lv.connect(tmp_path / "lake") as lake:
        for verb in ("read", "sql", "count", "optimize"):
            with pytest.raises(lv.StoreError, match=r"can't be opened|is missing|too long"):
                VERBS[verb](lake)


def test_files_outside_the_lake_are_read_and_rewritten_if_the_caller_allows_it(table: Path) -> None:
    allowed = [str(table.parent.parent / "elsewhere")]
    with lv.connect(table.parent, files_outside=allowed) as lake:
        assert sorted(lake.read("t")["n"].to_pylist()) == ["own", "private"]
        lake.table("t").optimize()
        assert sorted(lake.read("t")["n"].to_pylist()) == ["own", "private"]
    # The optimize has copied the rows into the table's own files.
    assert sorted(lv.connect(table.parent).read("t")["n"].to_pylist()) == ["own", "private"]
    assert (table.parent.parent / "elsewhere" / "private file.parquet").exists()


def test_operations_that_need_no_row_of_a_file_outside_the_lake_succeed(table: Path) -> None:
    with lv.connect(table.parent) as lake:
        assert len(lake.table("t").history()) == 2
        lake.run(lambda txn: txn.append("t", [{"n": "more"}]))
        lake.run(lambda txn: txn.overwrite("t", OWN))
        assert lake.read("t").num_rows == 1


def test_changes_refuses_a_foreign_commit_that_names_a_file_outside_the_lake(
    tmp_path: Path,
) -> None:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("t", OWN)
        before = lake.snapshot().version
        file = private_file(tmp_path / "elsewhere", "a.parquet")
        add_to_log(tmp_path / "lake" / "t", f"file://{file}", file.stat().st_size)
        lake.run(lambda txn: txn.append("t", OWN))

        with pytest.raises(lv.InvalidOperation, match="files_outside"):
            lake.run(lambda txn: txn.changes("t", before))


def test_a_file_of_the_lake_may_be_named_by_its_full_uri(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "lake" / "t"), OWN)
    write_deltalake(str(tmp_path / "lake" / "u"), PRIVATE)
    table = tmp_path / "lake" / "t"
    pq.write_table(OWN, table / "again.parquet")
    for file in (table / "again.parquet", *(tmp_path / "lake" / "u").glob("*.parquet")):
        add_to_log(table, f"file://{file}", file.stat().st_size)

    rows = lv.connect(tmp_path / "lake").read("t")

    assert sorted(rows["n"].to_pylist()) == ["own", "own", "private"]


def test_a_file_may_be_named_by_the_link_through_which_the_lake_is_opened(tmp_path: Path) -> None:
    table = tmp_path / "lake" / "t"
    write_deltalake(str(table), OWN)
    os.symlink(tmp_path / "lake", tmp_path / "link")
    pq.write_table(OWN, table / "again.parquet")
    add_to_log(table, f"{tmp_path}/link/t/again.parquet", (table / "again.parquet").stat().st_size)

    assert lv.connect(tmp_path / "link").read("t").num_rows == 2


def test_a_deletion_vector_outside_the_lake_is_not_read(tmp_path: Path) -> None:
    table = tmp_path / "lake" / "t"
    write_deltalake(str(table), OWN)
    pq.write_table(OWN, table / "again.parquet")
    (tmp_path / "vector.bin").write_bytes(b"\1" + bytes(100))
    add_to_log(
        table,
        "again.parquet",
        (table / "again.parquet").stat().st_size,
        deletionVector={
            "storageType": "p",
            "pathOrInlineDv": f"file://{tmp_path}/vector.bin",
            "offset": 1,
            "sizeInBytes": 36,
            "cardinality": 1,
        },
    )

    with pytest.raises(lv.InvalidOperation, match=r"vector\.bin.*files_outside"):
        lv.connect(tmp_path / "lake").read("t")
    with pytest.raises(lv.CorruptObject):  # the file is read, but is no deletion vector
        lv.connect(tmp_path / "lake", files_outside=[str(tmp_path)]).read("t")


def test_a_registered_table_outside_the_lake_reads_its_own_files(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "far" / "x"), OWN)
    file = private_file(tmp_path / "elsewhere", "a.parquet")
    lv.connect(tmp_path / "lake").register("x", str(tmp_path / "far" / "x"))

    again = lv.connect(tmp_path / "lake")
    assert again.read("x")["n"].to_pylist() == ["own"]
    again.run(lambda txn: txn.append("x", [{"n": "more"}]))
    again.table("x").optimize()

    add_to_log(tmp_path / "far" / "x", str(file), file.stat().st_size)
    with pytest.raises(lv.InvalidOperation, match="files_outside"):
        lv.connect(tmp_path / "lake").read("x")


def test_clones_of_a_registered_table_outside_the_lake_need_no_permission(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "far" / "x"), pa.table({"n": ["a", "b"]}))
    lake = lv.connect(tmp_path / "lake")
    lake.register("x", str(tmp_path / "far" / "x"))
    lake.clone("x", "trial")

    assert lv.connect(tmp_path / "lake").read("trial").num_rows == 2
    writer = lv.connect(tmp_path / "lake")
    writer.run(lambda txn: txn.append("trial", [{"n": "c"}]))
    writer.clone("trial", "second")
    writer.tag("v1")

    def seen(name: str, ref: str = "main") -> list[str]:
        """Return the rows that a new client reads."""
        found: list[str] = lv.connect(tmp_path / "lake").on(ref).read(name)["n"].to_pylist()
        return sorted(found)

    assert seen("trial") == seen("second") == seen("trial", "v1") == ["a", "b", "c"]


def test_an_export_is_read_by_its_own_lake_and_by_another_with_permission(tmp_path: Path) -> None:
    lake = lv.connect(tmp_path / "lake")
    lake.create_table("t", OWN)
    lake.export("t", f"{tmp_path}/out")

    assert lv.connect(tmp_path / "lake").read(f"{tmp_path}/out").num_rows == 1
    with pytest.raises(lv.InvalidOperation, match="files_outside"):
        lv.connect(tmp_path / "other").read(f"{tmp_path}/out")
    allowed = lv.connect(tmp_path / "other", files_outside=[tmp_path / "lake"])
    assert allowed.read(f"{tmp_path}/out").num_rows == 1


def test_verify_reports_a_file_outside_the_lake_and_goes_on(table: Path) -> None:
    with lv.connect(table.parent) as lake:
        lake.register("t")
        lake.create_table("u", OWN)
        report = lake.verify()

    (found,) = (one for one in report.findings if one.severity != "note")
    assert (found.kind, found.table) == ("file_elsewhere", "t")
    assert "files_outside" in found.message


def test_a_lake_on_an_object_store_reads_no_local_file(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place("remote", request)
    place.write("t", OWN)
    file = private_file(tmp_path, "a.parquet")
    add = {
        "path": f"file://{file}",
        "partitionValues": {},
        "size": file.stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
    }
    with place.connect() as lake:
        body = json.dumps({"add": add}).encode()
        inside(lake).run(put("t/_delta_log/00000000000000000001.json", body, ANY))

        with pytest.raises(lv.InvalidOperation, match="on this machine"):
            lake.read("t")
        with pytest.raises(lv.InvalidOperation, match="on this machine"):
            lake.table("t").optimize()
        with pytest.raises(lv.InvalidOperation, match="on this machine"):
            lake.read(f"file://{tmp_path}")
    with pytest.raises(lv.InvalidOperation, match="on this machine"):
        place.connect(files_outside=[str(tmp_path)])


def test_a_file_in_another_bucket_is_read_with_permission(request: pytest.FixtureRequest) -> None:
    place, other = (make_place("remote", request) for _ in range(2))
    place.write("t", OWN)
    other.write("x", PRIVATE)
    file = other.delta("x").file_uris()[0]
    with place.connect() as lake:
        size = pa.table(other.delta("x").get_add_actions())["size_bytes"][0].as_py()
        add = {
            "path": file.replace("s3://", "s3a://"),
            "partitionValues": {},
            "size": size,
            "modificationTime": 1,
            "dataChange": True,
        }
        body = json.dumps({"add": add}).encode()
        inside(lake).run(put("t/_delta_log/00000000000000000001.json", body, ANY))

        with pytest.raises(lv.InvalidOperation, match="files_outside"):
            lake.sql("SELECT * FROM t")
    with place.connect(files_outside=[other.root]) as lake:
        assert lake.sql("SELECT * FROM t").num_rows == 2
