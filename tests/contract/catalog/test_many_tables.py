"""Requests of catalog queries in a lake with 100,000 tables."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import lakevilla as lv
from bench.size.many_tables import cost, lake_of, location, real_tables
from tests.support.search import how_many

COUNT = how_many(20_000, whole=100_000)
MIDDLE = COUNT * 2 // 5


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with lake_of(COUNT, str(tmp_path_factory.mktemp("many") / "lake"), commits=1) as lake:
        yield lake.root


@pytest.fixture
def lake(root: str) -> Iterator[lv.Lake]:
    """Return a client that has nothing of the lake cached."""
    with lv.connect(root) as lake:
        yield lake


def test_tables_with_a_prefix_are_found_by_three_requests(lake: lv.Lake) -> None:
    some = real_tables(COUNT)[4]
    query = "SELECT name, rows FROM lakevilla_tables WHERE starts_with(name, :p)"
    found: list[int] = []
    requests = cost(lake, lambda: found.append(lake.sql(query, {"p": some[:-1]}).num_rows))
    assert found == [10]
    assert requests.total <= 3, requests


def test_a_query_of_one_tables_files_opens_that_table_alone(lake: lv.Lake) -> None:
    some = real_tables(COUNT)[4]
    query = 'SELECT path FROM lakevilla_files WHERE "table" = :t'
    requests = cost(lake, lambda: lake.sql(query, {"t": some}))
    assert requests.total <= 4, requests
    assert requests.list == 1


def test_the_first_hundred_names_cost_two_requests(lake: lv.Lake) -> None:
    pages: list[lv.TablePage[lv.ListedTable]] = []
    first = cost(lake, lambda: pages.append(lake.tables(limit=100, details=False)))
    assert first.total <= 2, first
    after = pages[0].next
    second = cost(lake, lambda: pages.append(lake.tables(limit=100, after=after, details=False)))
    assert second.total <= 2, second
    found = [one.name for page in pages for one in page]
    assert len(found) == 200
    assert found == sorted(found)


def test_a_path_with_a_range_of_names_reads_only_the_leaves_of_that_range(lake: lv.Lake) -> None:
    directory, first = location(MIDDLE).rsplit("/", 1)
    _, last = location(MIDDLE + 10).rsplit("/", 1)
    path = f"/{directory}/*[name >= '{first}' AND name < '{last}']"
    found: list[pa.Table] = []
    requests = cost(lake, lambda: found.append(lake.query(path)))
    assert found[0].num_rows == 10
    assert requests.total <= 3, requests
