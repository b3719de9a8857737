"""Run SQLAlchemy's plugin for pytest over lakes: each test class gets a new lake with free names.

Tests of one class may make the same tables again; each of these tests gets a lake, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from sqlalchemy.dialects import registry
from sqlalchemy.testing.plugin import pytestplugin
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: F403

from lakevilla.dbapi.sqlalchemy import LakeVillaDialect

for _name in ("lakevilla", "lakevilla.dbapi"):
    registry.register(_name, "lakevilla.dbapi.sqlalchemy", "LakeVillaDialect")

_numbers = itertools.count()
_current = [f"memory://suite-{next(_numbers)}"]
_connect = LakeVillaDialect.connect


def _to_the_current_lake(self: LakeVillaDialect, *args: Any, **options: Any) -> Any:
    return _connect(self, *args, **{**options, "lake": _current[0]})


LakeVillaDialect.connect = _to_the_current_lake  # type: ignore[method-assign]


def pytest_addoption(parser: pytest.Parser) -> None:
    pytestplugin.pytest_addoption(parser)
    parser.addoption("--part", default="0/1", help="of so many parts which: 2/8 is the third")


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    pytestplugin.pytest_collection_modifyitems(session, config, items)
    from tests.interop.dbapi.suite.requirements import LEFT_OUT

    part, _, parts = config.getoption("--part").partition("/")

    def runs(item: Any) -> bool:
        name = item.name.partition("[")[0]
        of = crc32(getattr(item.cls, "__name__", "").encode()) % int(parts)
        return of == int(part) and not LEFT_OUT.keys() & {name, item.name}

    config.hook.pytest_deselected(items=[item for item in items if not runs(item)])
    items[:] = [item for item in items if runs(item)]


def _keeps_its_tables(item: Any, following: Any) -> bool:
    from sqlalchemy.testing import fixtures  # the plugin has to set this up first

    kind = getattr(item, "cls", None)
    if following is None or kind is not getattr(following, "cls", None) or kind is None:
        return False
    return issubclass(kind, fixtures.TablesTest) and kind.run_create_tables == "once"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: Any, nextitem: Any) -> Iterator[None]:
    yield
    if not _keeps_its_tables(item, nextitem):
        _current[0] = f"memory://suite-{next(_numbers)}"
        from sqlalchemy.testing import config

        config.db.dispose()
