"""SQL that a store holds (views, constraints) reaches the tables of the lake alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakevilla as lv
from tests.support.hostile.watch import watched

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's events are Linux's")

#: What an attacker writes in place of ``FROM stock``.
SOURCES = [
    "FROM read_csv('{file}')",
    "FROM read_text('{file}')",
    "FROM '{file}'",
    "FROM glob('{directory}/*')",
    "FROM sniff_csv('{file}')",
    "FROM query('FROM read_text(''{file}'')')",
    "FROM stock, read_text('{file}')",
    "FROM (SELECT getenv('HOME'))",
    "FROM duckdb_secrets()",
    "FROM '../outside/a.csv'",
    "FROM 'file://{file}'",
    "FROM 's3://bucket/x.parquet'",
    "FROM stock; ATTACH '{file}' AS x",
    "FROM stock; COPY stock TO '{directory}/out.csv'",
]
CONDITIONS = [
    "qty > (SELECT count(*) FROM read_text('{file}'))",
    "getenv('HOME') = 'x'",
    "qty > 0; COPY stock TO '{directory}/out.csv'",
    "read_text('{file}') = 'x'",
    "qty > __import__('os').system('true')",
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "a.csv").write_text("sku,qty\nhunter2,1\n")
    return directory


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "lake"
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        with lake.session() as session:
            session.sql("CREATE VIEW few AS SELECT * FROM stock")
            session.sql("ALTER TABLE stock ADD CONSTRAINT some CHECK (qty > 0)")
    return root


def rewrite(root: Path, old: str, new: str) -> None:
    """Replace a text in each log entry and commit object that has it, as their writer can."""
    found = 0
    for path in root.rglob("*.json"):
        text = path.read_text()
        if old in text:
            path.write_text(text.replace(old, new.replace('"', '\\"')))
            found += 1
    assert found > 0


def text_of(source: str, outside: Path) -> str:
    return source.format(file=outside / "a.csv", directory=outside)


@pytest.mark.parametrize("source", SOURCES)
def test_a_view_that_was_rewritten_reaches_no_file(lake: Path, outside: Path, source: str) -> None:
    rewrite(lake, "FROM stock", text_of(source, outside))
    with watched(str(outside)) as watch, lv.connect(lake) as opened:
        for read in (lambda: opened.sql("SELECT * FROM few"), lambda: opened.read("few")):
            with pytest.raises(lv.LakeVillaError) as refused:
                read()
            assert "hunter2" not in str(refused.value)
    assert (watch.opened, watch.ran) == ([], [])
    assert [one.name for one in outside.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_constraint_that_was_rewritten_runs_nothing(
    lake: Path, outside: Path, condition: str
) -> None:
    rewrite(lake, "qty > 0", text_of(condition, outside))
    with watched(str(outside)) as watch, lv.connect(lake) as opened:
        with pytest.raises(lv.LakeVillaError):
            opened.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
        assert opened.read("stock").num_rows == 1
    assert (watch.opened, watch.ran) == ([], [])
    assert [one.name for one in outside.iterdir()] == ["a.csv"]


def test_a_view_and_a_constraint_that_were_rewritten_count(lake: Path) -> None:
    rewrite(lake, "FROM stock", "FROM stock WHERE qty > 100")
    rewrite(lake, "qty > 0", "qty > 3")
    with lv.connect(lake) as opened:
        assert opened.sql("SELECT * FROM few").num_rows == 0
        with pytest.raises(lv.LakeVillaError, match="some"):
            opened.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
        opened.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 4}]))
