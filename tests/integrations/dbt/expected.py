"""What dbt's adapter tests give and expect, in the words of a lake instead of Postgres'."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.adapter.basic.expected_catalog import (
    base_expected_catalog,
    expected_references_catalog,
    no_stats,
)
from dbt.tests.adapter.empty import _models as empty
from dbt.tests.adapter.incremental import test_incremental_microbatch as microbatch
from dbt.tests.adapter.persist_docs.test_persist_docs import BasePersistDocs
from dbt.tests.adapter.python_model import test_python_model as python_models
from dbt.tests.adapter.sample_mode import fixtures as sample_mode
from dbt.tests.adapter.simple_seed import fixtures as simple_seed
from dbt.tests.adapter.simple_seed.test_seed import BaseBasicSeedTests
from dbt.tests.adapter.utils import fixture_get_intervals_between as intervals
from dbt.tests.util import check_relations_equal, run_dbt

#: Patterns of Postgres' words, and the words of a lake.
WORDS = {
    # A lake keeps the log of a table that was dropped, and makes no other one in its place unasked.
    r"\bcreate table\b": "create or replace table",
    # `timestamp` is a moment in the definition of a lake's table.
    r"\btimestamp\b(?=\s*[,)])": "timestamp without time zone",
    # A time without a zone is written without one.
    r"(?<=:00)-0(?=')": "",
    # A column that is added is null in the rows that are there.
    r"(?<=\)) default (?:null|'\w+')": "",
}
TYPES = {
    "boolean": "BOOLEAN",
    "date": "DATE",
    "integer": "BIGINT",
    "text": "VARCHAR",
    "timestamp without time zone": "TIMESTAMP",
}


def in_words_of_a_lake(text: str) -> str:
    """Return a text of SQL in the words of a lake."""
    for pattern, word in WORDS.items():
        text = re.sub(pattern, word, text, flags=re.IGNORECASE)
    return text


def given(**values: object) -> type:
    """Return a class that has fixtures with these values."""

    def fixture_of(value: object) -> Any:
        return pytest.fixture(scope="class")(lambda self: value)

    return type("Given", (), {name: fixture_of(value) for name, value in values.items()})


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


class ModelHooks:
    """What hooks of models note of their target; that of a lake has no host and no user."""

    def check_hooks(self, state, project, host, count=1):
        for noted in self.get_ctx_vars(state, count=count, project=project):
            assert_noted(noted, state, project)


class RunHooks:
    """The same of the hooks of a run."""

    def check_hooks(self, state, project, host):
        assert_noted(self.get_ctx_vars(state, project), state, project)


def assert_noted(noted: dict[str, object], state: str, project: Any) -> None:
    """Fail if a hook has noted another state, target, run or thread than those it ran in."""
    target = {"name": "default", "schema": project.test_schema, "threads": 4, "type": "lakevilla"}
    expected = {f"target_{name}": value for name, value in target.items()}
    absent = dict.fromkeys(("target_dbname", "target_host", "target_user", "target_pass"), "")
    assert noted.items() >= {"test_state": state, **expected, **absent}.items()
    assert noted["run_started_at"]
    assert noted["invocation_id"]
    assert str(noted["thread_id"]).startswith(("Thread-", "MainThread"))


class EphemeralMulti:
    """The rows of models over ephemeral ones; the base compares the text of Postgres' statement."""

    def test_ephemeral_multi(self, project):
        run_dbt(["seed"])
        assert len(run_dbt(["run"])) == 3
        for model in ("dependent", "double_dependent", "super_dependent"):
            check_relations_equal(project.adapter, ["seed", model])


class EphemeralNested:
    """The rows of a view over an ephemeral model over another one."""

    def test_ephemeral_nested(self, project):
        assert len(run_dbt(["run"])) == 2
        check_relations_equal(project.adapter, ["source_table", "root_view"])


class BesideItsModule:
    """A class that reads a file beside the module that it is from."""

    @pytest.fixture(scope="class")
    def project(self, project):
        project.test_dir = str(Path(simple_seed.__file__).parent)
        return project


class KeptViews:
    """A seed that is loaded anew keeps the views over it, which Postgres drops."""

    def _check_relation_end_state(self, run_result, project, exists):
        BaseBasicSeedTests._check_relation_end_state(self, run_result, project, exists=True)


class ViewComments:
    """A view has a comment, and its columns have none."""

    def _assert_has_view_comments(self, view_node, has_node_comments=True, _columns=True):
        BasePersistDocs._assert_has_view_comments(self, view_node, has_node_comments, False)


def header_models(materialized: str) -> dict[str, str]:
    """Return a model whose rows show that its header has run before it."""
    model = f"""
{{{{ config(materialized='{materialized}', on_schema_change='append_new_columns') }}}}
{{% call set_sql_header(config) %}}create schema if not exists made_by_header;{{% endcall %}}
select schema_name::text as column_name
from information_schema.schemata where schema_name = 'made_by_header'
"""
    schema = """
models:
  - name: my_model_contract_sql_header
    config: {contract: {enforced: true}}
    columns: [{name: column_name, data_type: text}]
"""
    return {"my_model_contract_sql_header.sql": model, "constraints_schema.yml": schema}


def constrained(columns: str, names: str, select: str) -> str:
    """Return the statements by which a table with a contract is made and filled."""
    return f"""
create or replace table <model_identifier> ({columns}) ;
insert into <model_identifier> by name
select {names} from ({select}) as model_subq
"""


DEPENDENT = """
-- depends_on: <foreign_key_model_identifier>
select 'blue' as color, 1 as id, '2019-01-01' as date_day
"""
COLUMN_CHECKS = constrained(
    "id integer not null check ((id > 0)) check (id >= 1), color varchar, date_day varchar",
    "id, color, date_day",
    DEPENDENT,
)
TABLE_CHECKS = constrained(
    "id integer not null, color varchar, date_day varchar, check ((id > 0)), check (id >= 1)",
    "id, color, date_day",
    DEPENDENT,
)
QUOTED_CHECK = constrained(
    """id integer not null, "from" varchar not null, date_day varchar, check (("from" = 'blue'))""",
    'id, "from", date_day',
    """select 'blue' as "from", 1 as id, '2019-01-01' as date_day""",
)

INCREMENTAL = python_models.incremental_python.replace("df.id > 5", "'id > 5'")


def of_arrow(text: str) -> str:
    """Return a model in Python that makes its rows by Arrow instead of Spark."""
    rows = r"pa.Table.from_pylist([dict(zip(\1, row)) for row in data])"
    made = re.sub(r"session\.createDataFrame\(data, (.*)\)", rows, text)
    return f"import pyarrow as pa\n{made}"


META = {
    "meta_test.py": of_arrow(python_models.python_model_meta_get),
    "meta_from_schema.py": of_arrow(python_models.python_model_meta_from_schema),
    "schema.yml": python_models.schema_yml_with_meta,
}
#: The seed's columns have names in lower case, and a type becomes another, wider one.
WIDER = empty.ALTER_COLUMN_TYPE.replace('"MY_VALUE", "varchar"', '"my_id", "decimal(38, 0)"')
EMPTY = {
    "schema.yml": empty.SCHEMA,
    "control.sql": empty.CONTROL,
    "get_columns_in_relation.sql": empty.GET_COLUMNS_IN_RELATION,
    "alter_column_type.sql": WIDER,
    "alter_relation_comment.sql": empty.ALTER_RELATION_COMMENT,
    "alter_column_comment.sql": empty.ALTER_COLUMN_COMMENT,
    "alter_relation_add_remove_columns.sql": empty.ALTER_RELATION_ADD_REMOVE_COLUMNS,
    "truncate_relation.sql": empty.TRUNCATE_RELATION,
}
WIDENED = {"seeds": {"+table_properties": {"delta.enableTypeWidening": "true"}}}
#: A date is written as the standard has it.
INTERVALS = {
    "test_get_intervals_between.yml": intervals.models__test_get_intervals_between_yml,
    "test_get_intervals_between.sql": re.sub(
        r"(\d\d)/(\d\d)/(\d{4})", r"\3-\1-\2", intervals.models__test_get_intervals_between_sql
    ),
}
TIMES = {
    "current_timestamp": "TIMESTAMP WITH TIME ZONE",
    "current_timestamp_in_utc_backcompat": "TIMESTAMP",
    "current_timestamp_backcompat": "TIMESTAMP",
}
#: Whole numbers of a seed have 64 bits unless it says otherwise.
SEED_OF_INTEGERS = {"seeds": {"+column_types": {"int_col": "integer"}}}
SEED_TYPES = re.sub(
    r"(?<=        type: ).+", lambda found: TYPES[found[0]], simple_seed.properties__schema_yml
)
PYTHON_INPUT = given(input_model_sql=in_words_of_a_lake(python_models._input_model_sql))

#: What a class gets in front of what it has.
MIXED_IN = {
    "BaseBasicSeedTests": KeptViews,
    "BaseConstraintQuotedColumn": given(expected_sql=QUOTED_CHECK),
    "BaseConstraintsRollback": given(expected_error_messages=["NULL", "id"]),
    "BaseConstraintsRuntimeDdlEnforcement": given(expected_sql=COLUMN_CHECKS),
    "BaseCurrentTimestamps": given(expected_schema=TIMES),
    "BaseDocsGenReferences": References,
    "BaseDocsGenerate": Docs,
    "BaseEphemeralMulti": EphemeralMulti,
    "BaseEphemeralNested": EphemeralNested,
    "BaseGetIntervalsBetween": given(models=INTERVALS),
    "BaseHookRefs": ModelHooks,
    "BaseIncrementalConstraintsColumnsEqual": Types,
    "BaseIncrementalConstraintsRollback": given(expected_error_messages=["NULL", "id"]),
    "BaseIncrementalConstraintsRuntimeDdlEnforcement": given(expected_sql=COLUMN_CHECKS),
    "BaseIncrementalContractSqlHeader": given(models=header_models("incremental")),
    "BaseMicrobatch": given(input_model_sql=in_words_of_a_lake(microbatch._input_model_sql)),
    "BaseModelConstraintsRuntimeEnforcement": given(expected_sql=TABLE_CHECKS),
    "BasePersistDocs": ViewComments,
    "BasePrePostModelHooks": ModelHooks,
    "BasePrePostModelHooksInConfig": ModelHooks,
    "BasePrePostModelHooksInConfigKwargs": ModelHooks,
    "BasePrePostModelHooksInConfigWithCount": ModelHooks,
    "BasePrePostRunHooks": RunHooks,
    "BasePythonEmptyTests": PYTHON_INPUT,
    "BasePythonIncrementalTests": given(
        models={"m_1.sql": python_models.m_1, "incremental.py": INCREMENTAL}
    ),
    "BasePythonMetaGetTests": given(models=META),
    "BasePythonSampleTests": PYTHON_INPUT,
    "BaseSampleModeTest": given(input_model_sql=in_words_of_a_lake(sample_mode.input_model_sql)),
    "BaseSeedConfigFullRefreshOn": KeptViews,
    "BaseShowDoesNotHandleDoubleLimit": type(
        "LimitError", (), {"DATABASE_ERROR_MESSAGE": "near 'limit'"}
    ),
    "BaseSimpleSeedColumnOverride": given(models={"schema.yml": SEED_TYPES}),
    "BaseSimpleSeedWithBOM": BesideItsModule,
    "BaseTableConstraintsColumnsEqual": Types,
    "BaseTableContractSqlHeader": given(models=header_models("table")),
    "BaseTypeInt": given(project_config_update=SEED_OF_INTEGERS),
    "BaseViewConstraintsColumnsEqual": Types,
    "MetadataWithEmptyFlag": given(models=EMPTY, project_config_update=WIDENED),
}
