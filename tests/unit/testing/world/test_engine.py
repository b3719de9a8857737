"""The row engine of the simulator; deltalake reads the tables that it has written."""

import deltalake
import pyarrow as pa
import pytest

from lakevilla.engines.base import MergeClause, MergeSpec, TableInput
from lakevilla.errors import InvalidOperation, StoreError
from lakevilla.formats.base import Change, CommitInfo
from lakevilla.formats.delta import DeltaFormat
from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.base import ANY
from lakevilla.store.effects import put
from lakevilla_testing.tables.reader import run_now, table_rows
from lakevilla_testing.world.engine import RowEngine
from lakevilla_testing.world.scheduler import Simulation

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])


class Table:
    """A table that the engine writes and the format publishes."""

    def __init__(self, rows, partition_by=()):
        self.simulation = Simulation()
        self.store = self.simulation.store
        self.engine = RowEngine(_Clock())
        self.format = DeltaFormat()
        self.names = iter(range(1000))
        blank = self.format.blank("t", "t")
        change = self.format.create(
            blank,
            SCHEMA,
            table_id="6f2c2c1e-8f25-4a3e-9d3b-0e7a3c2d1b4a",
            partition_by=partition_by,
            properties={},
            created_ms=1,
        )
        self.snapshot = blank
        self.publish(change)
        if rows:
            self.append(rows)

    def name(self, directory):
        return f"{directory}/{next(self.names)}.parquet".lstrip("/")

    def publish(self, change):
        at = 1001 + self.snapshot.version
        ready = self.run(self.format.prepare(self.snapshot, change, CommitInfo("WRITE"), at))
        self.run(put(ready.key, ready.body, ready.condition))
        self.snapshot = self.run(self.format.open("t", "t"))

    def run(self, program):
        return run_now(self.store, program)

    def append(self, rows):
        data = pa.Table.from_pylist(rows, schema=SCHEMA).to_reader()
        written = self.run(self.engine.write(self.snapshot.layout, data, self.name))
        self._store(written, ())

    def _store(self, written, removed):
        for item in written:
            self.run(put(f"t/{item.file.path}", item.body, ANY))
        self.publish(Change(adds=tuple(w.file for w in written), removes=removed))

    def rewrite(self, program):
        rewrite = self.run(program)
        self._store(rewrite.written, rewrite.removed)
        return rewrite

    @property
    def input(self):
        return TableInput(self.snapshot.layout, self.run(self.snapshot.files()))

    def where(self, text):
        return bind(parse_predicate(text), SCHEMA)

    def rows(self):
        return sorted((dict(r) for r in table_rows(self.store, "t")), key=lambda r: r["id"])

    def check(self, directory):
        self.store.dump(directory)
        real = deltalake.DeltaTable(str(directory / "t"))
        found = sorted(real.to_pyarrow_table().to_pylist(), key=lambda r: r["id"])
        assert found == self.rows()
        return found


class _Clock:
    def now(self):
        return 1_750_000_000.0

    def elapsed(self):
        return 0.0


def row(number, name="a", price=1.5):
    return {"id": number, "name": name, "price": price}


@pytest.fixture(params=[(), ("name",)], ids=["plain", "partitioned"])
def table(request):
    made = Table([row(1), row(2, "b"), row(3, None)], request.param)
    made.append([row(4), row(5, "a/b=c", None)])
    return made


def test_rows_written_by_the_row_engine_are_read_by_deltalake(table, tmp_path):
    assert [r["id"] for r in table.check(tmp_path)] == [1, 2, 3, 4, 5]
    statistics = deltalake.DeltaTable(str(tmp_path / "t")).get_add_actions(flatten=True)
    assert sum(pa.table(statistics).column("num_records").to_pylist()) == 5


def test_an_update_rewrites_only_files_with_matching_rows(table, tmp_path):
    assignments = bind_assignments({"price": parse_expression("price * 2")}, SCHEMA)
    rewrite = table.rewrite(
        table.engine.update(table.input, assignments, table.where("id <= 2"), table.name)
    )
    assert (rewrite.rows_matched, rewrite.rows_updated) == (2, 2)
    assert len(rewrite.removed) < len(table.run(table.snapshot.files())) + len(rewrite.removed)
    assert [r["price"] for r in table.check(tmp_path)] == [3.0, 3.0, 1.5, 1.5, None]


def test_an_update_that_matches_no_row_changes_nothing(table):
    rewrite = table.run(table.engine.update(table.input, {}, table.where("id > 99"), table.name))
    assert (rewrite.written, rewrite.removed, rewrite.rows_matched) == ((), (), 0)


def test_a_delete_removes_only_rows_for_which_the_predicate_is_true(table, tmp_path):
    rewrite = table.rewrite(table.engine.delete(table.input, table.where("name = 'a'"), table.name))
    assert rewrite.rows_deleted == 2
    assert [r["id"] for r in table.check(tmp_path)] == [2, 3, 5]


def test_a_merge_updates_deletes_and_inserts_rows(table, tmp_path):
    source = pa.Table.from_pylist([row(1, "new"), row(2, "gone"), row(9, "nine")], schema=SCHEMA)
    schemas = {"s": SCHEMA, "t": SCHEMA}
    values = {name: parse_expression(f"s.{name}") for name in SCHEMA.names}
    assignments = bind_assignments(values, SCHEMA, schemas)
    gone = bind(parse_predicate("s.name = 'gone'"), schemas)
    spec = MergeSpec(
        bind(parse_predicate("s.id = t.id"), schemas),
        "s",
        "t",
        (
            MergeClause("matched_delete", gone),
            MergeClause("matched_update", None, assignments),
            MergeClause("not_matched_insert", None, assignments),
            MergeClause(
                "not_matched_by_source_update",
                bind(parse_predicate("t.id = 4"), schemas),
                bind_assignments({"price": parse_expression("0.0")}, SCHEMA, schemas),
            ),
        ),
    )
    rewrite = table.rewrite(table.engine.merge(table.input, source.to_reader(), spec, table.name))
    counts = (rewrite.rows_updated, rewrite.rows_deleted, rewrite.rows_inserted)
    assert counts == (2, 1, 1)
    found = {r["id"]: (r["name"], r["price"]) for r in table.check(tmp_path)}
    assert found == {
        1: ("new", 1.5),
        3: (None, 1.5),
        4: ("a", 0.0),
        5: ("a/b=c", None),
        9: ("nine", 1.5),
    }
    twice = pa.concat_tables([source, source])
    with pytest.raises(InvalidOperation, match="2 source rows match one target row"):
        table.run(table.engine.merge(table.input, twice.to_reader(), spec, table.name))


def test_a_scan_filters_rows_and_selects_columns(table):
    reader = table.run(table.engine.scan(table.input, ["name", "id"], table.where("id < 3")))
    assert reader.schema.names == ["name", "id"]
    found = reader.read_all().to_pylist()
    assert sorted(r["id"] for r in found) == [1, 2]


def test_the_digest_of_matching_rows_changes_with_duplicate_rows(table):
    def digest(text):
        return table.run(table.engine.matching_rows(table.input, table.where(text)))

    before, others = digest("id = 2"), digest("id > 2")
    table.append([row(2, "b")])
    assert digest("id = 2") != before
    assert digest("id > 2") == others


def test_a_query_joins_tables_and_views(table):
    view = pa.table({"id": [1, 4], "factor": [10, 20]})
    found = table.run(
        table.engine.query(
            "SELECT t.id, v.factor FROM t JOIN v ON t.id = v.id WHERE v.factor > :least",
            {"t": table.input},
            {"v": view.to_reader()},
            {"least": 15},
        )
    )
    assert found.to_pylist() == [{"id": 4, "factor": 20}]


def test_a_missing_file_is_reported_with_its_name(table):
    key = next(k for k in table.store.objects if k.endswith(".parquet"))
    table.store.delete(key)
    with pytest.raises(StoreError, match="is missing"):
        table.run(table.engine.scan(table.input, None, None))
