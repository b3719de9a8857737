"""Completion on the objects that users hold shows only public names.

The names are the listed ones, and a few more (design, section 12).
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from uuid import uuid4

import pytest

import lakevilla as lv

NAMES = {
    "lakevilla": """
        AlreadyCommitted AuditFailed Backup Capabilities CommitOutcomeUnknown CommitResult
        ConflictError CorruptObject Diff DiscoveredTable Event Feature Finding ForeignConflict
        HistoryEntry InvalidOperation KeptVersion Lake LakeMetrics LakeVillaError LakeVillaWarning
        ListedTable LoggedOperation MergeConflict MergeResult OperationResult OptimizeResult
        Outcome QueuePlace Ref RefExists RefNotFound Report Session Settings Snapshot SparkTable
        StoreError Table TableExists TableHistoryEntry TableNotFound TablePage TableQueue
        TableVersion Transaction TransactionAborted TransactionInfo TransactionNotFound UnsafeStore
        UnsupportedFormat UnsupportedTableFeature Version VersionNotFound connect
        register_data_source restore show
    """,
    "lake": """
        abort absorb attach audited backup branch capabilities changes cherry_pick clone
        close create_table delete_ref diff discover doctor drop_table exists export follow
        foreach_batch gc guard history is_main_protected keep maintain merge metrics on
        outcome protect protect_main query read rebase recover refs register rename_table
        resume revert rollback root run scan session settings snapshot sql table tables tag
        transaction transactional transactions unguard unregister verify
    """,
    "transaction": """
        abort alter append apply changes commit create_table delete drop_table id merge operations
        overwrite read rename_table result save scan sql state take_turn update upsert
    """,
    "session": "close is_complete last_transaction sql statements transaction",
    "snapshot": "attach changes read scan sql timestamp version versions",
    "table": """
        columns count format guarded head history name optimize partition_by properties read restore
        schema snapshot_id to_duckdb to_pandas to_polars uri vacuum version versions
    """,
    "capabilities": "guarantees guarded other_writers",
    "merge": """
        execute when_matched_delete when_matched_update when_matched_update_all
        when_not_matched_by_source_delete when_not_matched_by_source_update
        when_not_matched_insert when_not_matched_insert_all
    """,
    "write": "files_added files_removed rows_deleted rows_inserted rows_matched rows_updated",
}


@pytest.fixture(scope="module")
def held() -> dict[str, object]:
    """The objects that a user gets, created by the public calls."""
    lake = lv.connect(f"memory://names-{uuid4()}")
    lake.create_table("t", [{"id": 1}])
    txn = lake.transaction()
    return {
        "lakevilla": lv,
        "lake": lake,
        "transaction": txn,
        "session": lake.session(),
        "snapshot": lake.snapshot(),
        "table": lake.table("t"),
        "capabilities": lake.capabilities("t"),
        "merge": txn.merge("t", [{"id": 1}], "source.id = target.id"),
        "write": txn.append("t", [{"id": 2}]),
    }


@pytest.mark.parametrize("what", NAMES)
def test_completion_shows_only_the_names_that_users_call(
    held: dict[str, object], what: str
) -> None:
    shown = {name for name in dir(held[what]) if not name.startswith("_")}
    assert shown == set(NAMES[what].split())


#: Modules that take long to load. Counting modules does not depend on how busy the machine is.
SLOW = (
    "pyarrow",
    "duckdb",
    "sqlglot",
    "obstore",
    "numpy",
    "pandas",
    "pyspark",
    "pyiceberg",
    "boto3",
)


def loaded(code: str) -> set[str]:
    """The modules that a process has loaded after ``code``."""
    code += "\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_import_lakevilla_loads_no_module_of_the_demo_the_tests_or_the_command_line() -> None:
    tools = ("lakevilla_testing", "lakevilla.cli.", "deltalake", "typer", "pyspark", "pyiceberg")
    found = loaded("import lakevilla; lakevilla.connect('memory://')")
    assert not [name for name in found if name.startswith(tools)]
    assert "pyarrow" in found


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("import lakevilla", 100),
        ("import lakevilla as lv; lv.ConflictError, lv.Settings, lv.CommitResult, dir(lv)", 100),
        ("from lakevilla.cli.app import app; app(['--help'], standalone_mode=False)", 400),
        ("from lakevilla.cli.app import app; app(['sql', '--help'], standalone_mode=False)", 490),
        ("from lakevilla.cli.app import app; app(['--version'], standalone_mode=False)", 400),
    ],
)
def test_import_and_help_load_no_slow_modules(code: str, most: int) -> None:
    """Time can't be measured on a busy machine; half a second is about a thousand modules."""
    found = loaded(code)
    assert not found & set(SLOW)
    assert len(found) <= most
    if code.startswith("import lakevilla"):
        ours_and_pythons = sys.stdlib_module_names | {"lakevilla", "__main__"}
        others = {name.partition(".")[0] for name in found} - ours_and_pythons
        assert not {name for name in others if not name.startswith("_")}


def test_each_public_name_can_be_loaded_from_the_package() -> None:
    for name in lv.__all__:
        assert getattr(lv, name).__name__ == name
    assert set(lv._HOMES) <= set(lv.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Lakes'"):
        lv.Lakes  # type: ignore[attr-defined]  # noqa: B018
    assert pickle.loads(pickle.dumps(lv.Feature.R)) is lv.Feature.R


LOOKS_AND_APPENDS = """
import lakevilla as lv, pyarrow as pa
from lakevilla.arrow.cast import array
with lv.connect({root!r}) as lake:
    assert [table.name for table in lake.tables()] == ["t"]
    rows = pa.Table.from_arrays([array([1], pa.int32()), array([7], pa.int64())], ["part", "id"])
    with lake.transaction() as txn:
        txn.append("t", rows)
"""
PRUNES = """
from bench.size.million import open_table
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_predicate
runner, snapshot = open_table({root!r}, "t", None)
for where in ("part = 1", "id < 5", "part in (0, 2) and id >= 1 and name like 'a%'"):
    found = snapshot.files(bind(parse_predicate(where), snapshot.layout.schema))
    assert 0 < runner.run(found).num_rows < snapshot.version
"""


@pytest.fixture(scope="module")
def checkpointed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with a table that has a checkpoint and later log entries."""
    root = tmp_path_factory.mktemp("lake")
    with lv.connect(root) as lake:
        for number in range(14):
            rows = [{"part": number % 3, "id": number, "name": "ab"[number % 2]}]
            if not number:
                lake.create_table("t", rows, partition_by=["part"])
            else:
                lake.run(lambda txn, rows=rows: txn.append("t", rows))
    assert list(root.rglob("*.checkpoint.parquet"))
    return str(root)


@pytest.mark.parametrize("code", [LOOKS_AND_APPENDS, PRUNES], ids=["append", "prune"])
def test_opening_a_table_pruning_and_appending_load_neither_duckdb_nor_pandas(
    code: str, checkpointed: str
) -> None:
    """Both are large, and such a process needs neither; by default pyarrow would load pandas."""
    found = loaded(code.format(root=checkpointed))
    assert "pyarrow" in found
    assert not found & {"duckdb", "pandas"}
    # sqlglot parses the text of a predicate; an append has none.
    assert ("sqlglot" in found) == (code is PRUNES)
