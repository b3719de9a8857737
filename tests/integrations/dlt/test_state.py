"""State and schemas in the lake, refreshes and drops, and reads of a dataset."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dlt
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.dlt import lakevilla
from tests.integrations.dlt.pipelines import rows_of

Make = Callable[..., dlt.Pipeline]


@dlt.resource(name="events", write_disposition="append")
def events(upto: int, at: Any = dlt.sources.incremental("n", initial_value=0)) -> Any:  # noqa: B008
    yield from ({"n": n} for n in range(1, upto + 1) if n > (at.last_value or 0))


def test_another_machine_goes_on_from_the_stored_state(make: Make) -> None:
    make().run(events(3))
    there = make(machine="there")
    there.run(events(5))
    assert [row["n"] for row in rows_of(there, "events")] == [1, 2, 3, 4, 5]


def test_a_fresh_machine_restores_the_schemas(make: Make) -> None:
    make().run([{"a": 1, "b": {"c": 2}}], table_name="t")
    there = make(machine="there")
    there.sync_destination()
    assert set(there.default_schema.tables["t"]["columns"]) >= {"a", "b__c"}


def test_a_schema_version_is_stored_once(pipeline: dlt.Pipeline, lake: Any) -> None:
    for rows in ([{"a": 1}], [{"a": 2}], [{"a": 3, "b": 1}]):
        pipeline.run(rows, table_name="t")
    hashes = lake.read("shop_data/_dlt_version")["version_hash"].to_pylist()
    assert len(hashes) == len(set(hashes)) == 2


def source(*names: str) -> Any:
    @dlt.source(name="shop")
    def shop() -> Any:
        for name in names:
            yield dlt.resource([{"id": 1, name: 1, "parts": [1]}], name=name)

    return shop()


@pytest.mark.parametrize("refresh", ["drop_sources", "drop_resources", "drop_data"])
def test_a_refresh_and_its_load_are_one_commit(
    pipeline: dlt.Pipeline, lake: Any, refresh: Any
) -> None:
    pipeline.run(source("a", "b"))
    before = lake.history()[0].version
    pipeline.run(source("a"), refresh=refresh)
    [commit] = lake.history(1)
    assert commit.version == before + 1
    assert rows_of(pipeline, "a") == [{"id": 1, "a": 1}]
    names = {table.name for table in lake.tables()}
    assert ("shop_data/b" in names) == (refresh != "drop_sources")


def test_a_refresh_creates_a_table_with_other_types(pipeline: dlt.Pipeline) -> None:
    pipeline.run(dlt.resource([{"n": 1}], name="t"))
    pipeline.run(dlt.resource([{"n": "one"}], name="t"), refresh="drop_resources")
    assert rows_of(pipeline, "t") == [{"n": "one"}]


def test_the_drop_command_drops_a_resource_with_its_state(
    pipeline: dlt.Pipeline, lake: Any
) -> None:
    from dlt.pipeline import helpers

    drop = getattr(helpers, "pipeline_drop", None) or helpers.drop
    pipeline.run(events(3))
    pipeline.run([{"n": 1}], table_name="kept")
    drop(pipeline, resources="events")()
    names = {table.name for table in lake.tables()}
    assert "shop_data/events" not in names
    assert "shop_data/kept" in names
    pipeline.run(events(2))
    assert [row["n"] for row in rows_of(pipeline, "events")] == [1, 2]


def test_a_dropped_dataset_is_loaded_anew(pipeline: dlt.Pipeline, make: Make) -> None:
    pipeline.run([{"n": 1}], table_name="t")
    with pipeline.destination_client() as client:
        client.drop_storage()
        assert not client.is_storage_initialized()
    fresh = make(machine="there")
    fresh.run([{"n": 2}], table_name="t")
    assert rows_of(fresh, "t") == [{"n": 2}]


def test_a_schema_is_synchronized_without_a_load(pipeline: dlt.Pipeline, lake: Any) -> None:
    pipeline.extract([{"n": 1}], table_name="t")
    pipeline.normalize()
    pipeline.default_schema.update_table({"name": "later", "columns": {}})
    pipeline.sync_schema()
    assert "shop_data/later" not in lake
    assert lake["shop_data/t"].schema.names[0] == "n"


def test_a_dataset_is_read_by_sql_and_by_relations(pipeline: dlt.Pipeline) -> None:
    pipeline.run([{"n": n} for n in range(5)], table_name="t")
    data = pipeline.dataset()
    assert data("SELECT sum(n) AS total FROM t").fetchall() == [(10,)]
    assert data["t"].select("n").limit(2).arrow().num_rows == 2
    assert [len(part) for part in data["t"].iter_arrow(chunk_size=2)] == [2, 2, 1]
    counts = data.row_counts().fetchall()
    assert ("t", 5) in counts


def test_a_client_of_sql_runs_statements(pipeline: dlt.Pipeline) -> None:
    pipeline.run([{"n": 1}], table_name="t")
    with pipeline.sql_client() as client:
        with client.begin_transaction():
            client.execute_sql("UPDATE shop_data.t SET n = %s WHERE n = %s", 7, 1)
        with pytest.raises(ZeroDivisionError), client.begin_transaction():
            client.execute_sql("DELETE FROM shop_data.t WHERE n = :n", n=7)
            raise ZeroDivisionError
        assert client.execute_sql("SELECT n FROM t") == [(7,)]


def test_a_name_of_with_hides_a_table_only_where_it_is_one(
    pipeline: dlt.Pipeline, lake: Any
) -> None:
    pipeline.run([{"n": 1}], table_name="t")
    lake.run(lambda txn: txn.create_table("t", pa.schema([("n", pa.int64())])))
    with pipeline.sql_client() as client:
        for query in (
            "WITH t AS (SELECT n + 1 AS n FROM t) SELECT n FROM t",
            "SELECT n FROM (WITH t AS (SELECT 2 AS n) SELECT n FROM t) AS a "
            "WHERE EXISTS (SELECT 1 FROM t)",
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 2) "
            "SELECT max(n) FROM t",
            "WITH a AS (SELECT n FROM t), b AS (SELECT n + 1 AS n FROM A) SELECT n FROM b",
        ):
            assert client.execute_sql(query) == [(2,)], query


def test_a_missing_table_is_undefined_to_dlt(pipeline: dlt.Pipeline) -> None:
    from dlt.destinations.exceptions import DatabaseUndefinedRelation

    pipeline.run([{"n": 1}], table_name="t")
    with pipeline.sql_client() as client, pytest.raises(DatabaseUndefinedRelation):
        client.execute_sql("SELECT * FROM shop_data.nope")


LOADED = """
import dlt
from lakevilla.dlt import lakevilla
pipeline = dlt.pipeline("named", destination=lakevilla(), dataset_name="d", pipelines_dir=".")
pipeline.run([{"n": 1}], table_name="t")
print(pipeline.destination_client().config.storage_options["timeout"])
"""


def test_configuration_files_name_the_lake_and_its_options(
    tmp_path: Path, root: str, lake: Any
) -> None:
    (tmp_path / ".dlt").mkdir()
    (tmp_path / ".dlt" / "config.toml").write_text(f'[destination.lakevilla]\nroot = "{root}"\n')
    options = '[destination.lakevilla.storage_options]\ntimeout = "9s"\n'
    (tmp_path / ".dlt" / "secrets.toml").write_text(options)
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "9s"
    assert lake.read("d/t")["n"].to_pylist() == [1]


def test_a_branch_takes_the_load(make: Make, lake: Any) -> None:
    make().run([{"n": 1}], table_name="t")
    lake.branch("next")
    make(branch="next", machine="there").run([{"n": 2}], table_name="t")
    assert lake.read("shop_data/t")["n"].to_pylist() == [1]
    lake.merge("next")
    assert sorted(lake.read("shop_data/t")["n"].to_pylist()) == [1, 2]


def test_another_client_reads_what_dlt_has_loaded(pipeline: dlt.Pipeline, root: str) -> None:
    pipeline.run([{"n": 1}], table_name="t")
    with lv.connect(root) as lake, lake.session() as session:
        assert session.sql("SELECT n FROM shop_data.t").to_pylist() == [{"n": 1}]


def test_a_transformation_is_loaded_as_a_model(pipeline: dlt.Pipeline, lake: Any) -> None:
    pipeline.run([{"n": n} for n in range(4)], table_name="t")

    @dlt.resource(name="large", columns={"n": {"data_type": "bigint"}})
    def large() -> Any:
        yield pipeline.dataset()("SELECT n FROM t WHERE n > 1")

    pipeline.run(large())
    assert [row["n"] for row in rows_of(pipeline, "large")] == [2, 3]


def test_a_dataset_with_the_name_of_the_main_schema_is_refused(make: Make) -> None:
    with pytest.raises(Exception, match="choose another"):
        make(dataset="main").run([{"n": 1}], table_name="t")


def test_a_destination_is_shown_without_the_keys_of_the_store() -> None:
    options = {"aws_secret_access_key": "hunter2"}
    destination = lakevilla("s3://warehouse", storage_options=options)
    for shown in (repr(destination), str(destination)):
        assert "hunter2" not in shown
        assert "s3://warehouse" in shown
