"""dbt's own tests of adapters: all classes of ``dbt.tests.adapter`` that are for subclasses.

``--suite basic``, which is the default, takes the folder ``basic``; ``--suite whole`` takes all.
What a class gets in the words of a lake is in ``expected.py``.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dbt.tests import adapter
from dbt.tests.fixtures.project import TestProjInfo

from tests.integrations.dbt.expected import MIXED_IN, in_words_of_a_lake

#: Why a class is left out, a folder of classes, or one test of a class.
SKIPPED = {
    "grants": "a lake has no server, and so no grants",
    "functions": "a lake has no functions of its own",
    "catalog_integrations": "a lake is its own catalog",
    "materialized_view": "a lake has no materialized views",
    "CatalogRelationTypes": "one of its models is a materialized view",
    "BaseSimpleCopyUppercase": "its target is a Postgres",
    "BaseClonePossible": "dbt clone makes views, as BaseCloneNotPossible expects",
    "BaseCloneSameSourceAndTarget": "its models are no fixtures, so that it has none to clone",
    "BaseSameAliasDifferentDatabases": "a lake is one database",
    "BaseSeedWithWrongDelimiter": "expects that a column can't have the name 'a|b'",
    "BaseIncrementalForeignKeyConstraint": "a lake has no foreign keys",
    "BaseGetCatalogForSingleRelation": "the capability is not declared",
    "BaseCurrentTimestampNaive": "now() has a zone, as BaseCurrentTimestampAware expects",
    "BaseEscapeSingleQuotesBackslash": "a text doubles its quotes: BaseEscapeSingleQuotesQuote",
    "BasePySparkTests": "its models are Spark's",
    # The test before it in its class has the same hooks, and passes.
    "test_pre_and_post_seed_hooks": "its hooks make a table that was dropped by CREATE TABLE",
    "test_simple_copy_with_materialized_views": "a lake has no materialized views",
}
#: Classes without models, which others extend.
BASES = {
    "BaseArrayUtils",
    "BaseCachingTest",
    "BaseConstraintsColumnsEqual",
    "BaseContractSqlHeader",
    "BaseDataTypeMacro",
    "BaseUtils",
}


def classes() -> Iterator[tuple[Path, str, type]]:
    """Yield the directory, name and class of each test that is for subclasses."""
    root = Path(adapter.__path__[0])
    for path in sorted(root.rglob("[!_]*.py")):
        place = path.relative_to(root).with_suffix("").parts
        module = importlib.import_module(".".join(("dbt.tests.adapter", *place)))
        for name, found in vars(module).items():
            is_here = inspect.isclass(found) and found.__module__ == module.__name__
            is_test = is_here and any(member.startswith("test_") for member in dir(found))
            if is_test and not name.startswith(("_", "Test")) and name not in BASES:
                yield root / place[0], name, found


def left_out(reason: str) -> Callable[[object], None]:
    """Return a test that is skipped; pytest ignores the mark of a lambda."""

    @pytest.mark.skip(reason=reason)
    def test(self: object) -> None:
        """Do nothing."""

    return test


for _directory, _name, _base in classes():
    _reason = SKIPPED.get(_directory.name) or SKIPPED.get(_name)
    _members = {
        "__module__": __name__,
        "directory": _directory,
        "pytestmark": [pytest.mark.skip(reason=_reason)] if _reason else [],
    }
    for _test in SKIPPED.keys() & set(dir(_base)):
        _members[_test] = left_out(SKIPPED[_test])
    _called = f"Test{_name.removeprefix('Base')}"
    _mixed_in = (MIXED_IN[_name],) if _name in MIXED_IN else ()
    globals()[_called] = type(_called, (*_mixed_in, _base), _members)


@pytest.fixture(scope="class")
def test_data_dir(request: pytest.FixtureRequest) -> Path:
    """Return where the files are that a class reads."""
    return request.cls.directory / "data"


@pytest.fixture(autouse=True, scope="session")
def _words_of_a_lake() -> Iterator[None]:
    """Let the statements by which the tests make their own tables be those of a lake."""
    run_sql = TestProjInfo.run_sql

    def translated(self: TestProjInfo, sql: str, fetch: str | None = None) -> object:
        return run_sql(self, in_words_of_a_lake(sql), fetch=fetch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TestProjInfo, "run_sql", translated)
        yield
