"""dbt's own tests of adapters: all classes of ``dbt.tests.adapter`` that are for subclasses.

``--suite basic``, which is the default, takes the folder ``basic``; ``--suite whole`` takes all.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbt.tests import adapter
from dbt.tests.adapter.basic.expected_catalog import (
    base_expected_catalog,
    expected_references_catalog,
    no_stats,
)
from dbt.tests.fixtures.project import TestProjInfo

#: Why a class is left out, or a folder of classes.
SKIPPED = {
    "grants": "a lake has no server, and so no grants",
    "functions": "a lake has no functions of its own",
    "catalog_integrations": "a lake is its own catalog",
    "python_model": "the models are pandas' or Spark's: test_models.py has models of DuckDB",
    "BaseSimpleCopyUppercase": "names are compared as they are",
    "BaseClonePossible": "dbt clone makes views: no table is copied",
    "BaseCloneSameSourceAndTarget": "its models write three parts of a name: a lake's have two",
    "BaseSnapshotDbtValidToCurrent": "its models write three parts of a name",
    "BaseSnapshotColumnNames": "its models write three parts of a name",
    "BaseSnapshotColumnNamesFromDbtProject": "its models write three parts of a name",
    "BaseSameAliasDifferentDatabases": "a lake is one database",
    "BasePersistDocs": "a view has no comments of columns: its other classes run",
    "BaseEphemeralMulti": "compares the text of CREATE VIEW with Postgres'",
    "BaseEphemeralNested": "compares the text of CREATE VIEW with Postgres'",
    "BaseCachingTest": "is a base without models",
    "BaseBasicSeedTests": "expects that a seed drops the views over it, as Postgres does",
    "BaseSeedConfigFullRefreshOn": "expects that a seed drops the views over it, as Postgres does",
    "BaseSeedWithWrongDelimiter": "expects that a column can't have the name 'a;b'",
    "BaseSimpleSeedColumnOverride": "names Postgres' types: test_models.py has column types",
    "BaseConstraintsRuntimeDdlEnforcement": "compares the text of CREATE TABLE with Postgres'",
    "BaseIncrementalConstraintsRuntimeDdlEnforcement": "compares the text with Postgres'",
    "BaseConstraintQuotedColumn": "compares the text of CREATE TABLE with Postgres'",
    "BaseModelConstraintsRuntimeEnforcement": "compares the text of CREATE TABLE with Postgres'",
    "BaseIncrementalForeignKeyConstraint": "a lake has no foreign keys",
    "BaseGetCatalogForSingleRelation": "the capability is not declared",
    "BaseDebugPostgres": "is of Postgres",
    "BaseDebugInvalidProjectPostgres": "is of Postgres",
    "BasePostgresColumnTypes": "is of Postgres",
    "BaseShowDoesNotHandleDoubleLimit": "looks for the words of Postgres' error",
    "BaseValidateSqlMethod": "EXPLAIN is of one statement",
    "BaseConstraintsColumnsEqual": "is a base, whose models are views",
    "BaseContractSqlHeader": "is a base without models",
    "BaseTableContractSqlHeader": "sets the time zone of a session, which a lake does not have",
    "BaseIncrementalContractSqlHeader": "sets the time zone of a session",
    # The rest have fixtures of Postgres' SQL, which each adapter has to write anew.
    "BaseMicrobatch": "its input has times as Postgres writes them: test_models.py has batches",
    "BaseSampleModeTest": "its input has times as Postgres writes them",
    "hooks": "compare the fields of a target of Postgres: test_runs.py, test_models.py have hooks",
}
#: What the tests write for their tables, in Postgres' words, and the words of a lake.
WORDS = {
    r"\bcreate table\b": "create or replace table",
    r"\btimestamp\b(?=\s*[,)])": "timestamp without time zone",
    r'"?\blake\b"?\.(?=\S+\.\S)': "",
}


class Docs:
    """The catalog that ``dbt docs generate`` has to write, with a lake's types."""

    @pytest.fixture(scope="class")
    def expected_catalog(self, project, profile_user):
        return base_expected_catalog(
            project,
            role=None,
            id_type="BIGINT",
            text_type="VARCHAR",
            time_type="TIMESTAMP",
            view_type="VIEW",
            table_type="BASE TABLE",
            model_stats=no_stats(),
        )


class References:
    """The same of views and tables that refer to others."""

    @pytest.fixture(scope="class")
    def expected_catalog(self, project, profile_user):
        return expected_references_catalog(
            project,
            role=None,
            id_type="BIGINT",
            text_type="VARCHAR",
            time_type="TIMESTAMP",
            bigint_type="BIGINT",
            view_type="VIEW",
            table_type="BASE TABLE",
            model_stats=no_stats(),
        )


class Types:
    """The types of a contract by the names that errors have for them."""

    @pytest.fixture
    def string_type(self):
        return "VARCHAR"

    @pytest.fixture
    def int_type(self):
        return "INTEGER"

    @pytest.fixture
    def data_types(self, int_type, schema_int_type, string_type):
        return [
            ["1", schema_int_type, int_type],
            ["'1'", string_type, string_type],
            ["true", "boolean", "BOOLEAN"],
            ["'2013-11-03 00:00:00-07'::timestamptz", "timestamptz", "TIMESTAMP WITH TIME ZONE"],
            ["'2013-11-03 00:00:00'::timestamp", "timestamp", "TIMESTAMP"],
            ["ARRAY['a','b','c']", "varchar[]", "VARCHAR[]"],
            ["ARRAY[1,2,3]", "integer[]", "INTEGER[]"],
            ["'1'::decimal(4,1)", "decimal(4,1)", "DECIMAL(4,1)"],
        ]


class Broken:
    """What a row that breaks a contract is told."""

    @pytest.fixture(scope="class")
    def expected_error_messages(self):
        return ["NULL", "id"]


#: What a class gets in front of what it has.
MIXED_IN = {
    "BaseDocsGenerate": (Docs,),
    "BaseDocsGenReferences": (References,),
    "BaseIncrementalConstraintsColumnsEqual": (Types,),
    "BaseTableConstraintsColumnsEqual": (Types,),
    "BaseViewConstraintsColumnsEqual": (Types,),
    "BaseConstraintsRollback": (Broken,),
    "BaseIncrementalConstraintsRollback": (Broken,),
}


def classes() -> Iterator[tuple[str, str, type]]:
    """Yield the folder, name and class of each test that is for subclasses."""
    root = Path(adapter.__path__[0])
    for path in sorted(root.rglob("test_*.py")):
        place = path.relative_to(root).with_suffix("").parts
        module = importlib.import_module(".".join(("dbt.tests.adapter", *place)))
        for name, found in vars(module).items():
            is_here = inspect.isclass(found) and found.__module__ == module.__name__
            if (
                is_here
                and name.startswith("Base")
                and any(m.startswith("test_") for m in dir(found))
            ):
                yield place[0], name, found


for _folder, _name, _base in classes():
    _reason = SKIPPED.get(_folder) or SKIPPED.get(_name)
    _members = {
        "__module__": __name__,
        "folder": _folder,
        "pytestmark": [pytest.mark.skip(reason=_reason)] if _reason else [],
    }
    _called = f"Test{_name.removeprefix('Base')}"
    globals()[_called] = type(_called, (*MIXED_IN.get(_name, ()), _base), _members)


@pytest.fixture(autouse=True, scope="session")
def _words_of_a_lake() -> Iterator[None]:
    """Let the statements by which the tests make their own tables be those of a lake."""
    run_sql = TestProjInfo.run_sql

    def translated(self: TestProjInfo, sql: str, fetch: str | None = None) -> object:
        for pattern, word in WORDS.items():
            sql = re.sub(pattern, word, sql, flags=re.IGNORECASE)
        return run_sql(self, sql, fetch=fetch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TestProjInfo, "run_sql", translated)
        yield
