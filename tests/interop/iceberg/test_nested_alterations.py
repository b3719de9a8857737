"""Nested fields that LakeVilla and Spark add, rename, drop and relax in Iceberg tables."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.iceberg.beside import Beside

_COLUMNS = (
    "k BIGINT, s STRUCT<a: BIGINT, b: STRING>, l ARRAY<STRUCT<a: BIGINT, b: STRING>>, "
    "m MAP<STRING, STRUCT<a: BIGINT, b: STRING>>, "
    "d STRUCT<l: ARRAY<MAP<STRING, STRUCT<a: BIGINT, b: STRING>>>>"
)
_ONE = "named_struct('a', 1L, 'b', 'x')"
_ROWS = (
    f"(1, {_ONE}, array({_ONE}, NULL), map('q', {_ONE}), "
    f"named_struct('l', array(map('q', {_ONE})))), "
    "(2, NULL, NULL, NULL, NULL)"
)
_PLACES = ["s", "l.element", "m.value", "d.l.element.value"]


@pytest.mark.seam
@pytest.mark.cases(1)
@pytest.mark.parametrize("place", _PLACES)
def test_a_nested_field_is_altered_with_the_same_result_as_by_spark(
    beside: Beside, place: str
) -> None:
    for table in ("theirs", "ours"):
        beside.sql(f"CREATE TABLE {{t}} ({_COLUMNS}) USING iceberg", table)
        beside.sql(f"INSERT INTO {{t}} VALUES {_ROWS}", table)
    for one in (
        f"ADD COLUMN {place}.q INT",
        f"RENAME COLUMN {place}.a TO z",
        f"DROP COLUMN {place}.b",
    ):
        beside.sql(f"ALTER TABLE {{t}} {one}", "theirs")
    lake = beside.connect()
    session = lake.session()
    session.sql(f"ALTER TABLE ours ADD COLUMN {place}.q INT")
    session.sql(f"ALTER TABLE ours RENAME COLUMN {place}.a TO z")
    session.sql(f"ALTER TABLE ours DROP COLUMN {place}.b")
    beside.sql("REFRESH TABLE {t}", "ours")

    def rows(table: str) -> list[dict[str, Any]]:
        found = beside.by_spark(table).sort_by("k").to_pylist()
        assert beside.ours(table).sort_by("k").to_pylist() == found
        return found

    assert rows("ours") == rows("theirs")
    assert beside.by_spark("ours").schema.equals(beside.by_spark("theirs").schema)
    ours, theirs = (beside.metadata(table)["schemas"][-1]["fields"] for table in ("ours", "theirs"))
    assert ours == theirs  # ids too
    for writer in (lambda s: beside.sql(s, "ours"), lambda s: session.sql(s.format(t="ours"))):
        writer("INSERT INTO {t} SELECT * FROM {t} WHERE k = 1")
    assert len(rows("ours")) == 5


def test_spark_refuses_a_field_within_the_keys_of_a_map_too(beside: Beside) -> None:
    beside.sql("CREATE TABLE {t} (k INT, m MAP<STRUCT<a: INT>, INT>) USING iceberg")
    with pytest.raises(Exception, match="map keys"):
        beside.sql("ALTER TABLE {t} ADD COLUMN m.key.q INT")
