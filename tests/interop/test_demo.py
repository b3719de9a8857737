"""Run a small demo: every check holds, and a planted fault fails it."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from lakevilla.cli.demo import checks as demo_checks
from lakevilla.cli.demo import tables
from lakevilla.cli.demo.checks import OtherReader, check_bank, check_orders

LAKEVILLA = [str(Path(sys.executable).with_name("lakevilla"))]


@pytest.mark.night
def test_the_demo_kills_a_client_in_mid_commit_and_every_check_holds(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    done = subprocess.run(
        [*LAKEVILLA, "demo", "--scale", "0.01", "--batches", "6", "--keep", str(lake), "--json"],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert shown["ok"]
    assert all(check["holds"] for check in shown["checks"])
    assert {check["reader"] for check in shown["checks"]} == {"deltalake", "DuckDB", "LakeVilla"}
    torn = next(check for check in shown["checks"] if check["what"].startswith("half of a commit"))
    assert torn["seen"] is True
    assert any("SIGKILL" in note for note in shown["notes"])
    assert shown["recovery"]["findings"]
    assert deltalake.DeltaTable(str(lake / "bank_north")).version() > 0


def test_the_demo_refuses_a_store_that_it_cannot_check_and_makes_nothing_there() -> None:
    done = subprocess.run(
        [*LAKEVILLA, "demo", "--store", "gs://bucket/prefix"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "gs://" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_demo_refuses_a_directory_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = subprocess.run(
        [*LAKEVILLA, "demo", "--keep", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.fixture(scope="module")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, object]]:
    root = str(tmp_path_factory.mktemp("small"))
    scratch = tmp_path_factory.mktemp("generated")
    held = tables.create_orders(root, scratch, scale=0.001, batches=2, options={})
    tables.create_bank(root, {})
    for batch in held.batches():
        deltalake.write_deltalake(f"{root}/orders", batch.orders, mode="append")
        deltalake.write_deltalake(f"{root}/lineitem", batch.lines, mode="append")
        customers = deltalake.DeltaTable(f"{root}/customer")
        customers.merge(
            batch.payments,
            "t.c_custkey = s.customer",
            source_alias="s",
            target_alias="t",
        ).when_matched_update({"c_acctbal": "t.c_acctbal - s.amount"}).execute()
    return root, held.expected()


READERS = {"deltalake": demo_checks.deltalake_reader, "DuckDB": demo_checks.duckdb_reader}


@pytest.mark.parametrize("name", READERS)
def test_the_checks_pass_on_correct_tables(
    name: str, small_lake: tuple[str, dict[str, object]]
) -> None:
    root, expected = small_lake
    with READERS[name](root, {}) as reader:
        checks = [*check_orders(reader, expected), *check_bank(reader, Decimal(100_000))]
    assert len(checks) == 5
    assert all(check.holds for check in checks), checks


class Tampered:
    """A reader that returns changed tables."""

    def __init__(self, reader: OtherReader, **replaced: str) -> None:
        self.name = reader.name
        views = ", ".join(f"{table} AS ({query})" for table, query in replaced.items())
        self._with = f"WITH {views} "
        self._reader = reader

    def one(self, query: str) -> tuple[object, ...]:
        return self._reader.one(self._with + query)


ONE_CENT_MORE = "c_acctbal + 0.01 AS c_acctbal"


@pytest.mark.parametrize(
    ("replaced", "broken"),
    [
        ({"lineitem": "FROM temp.main.lineitem WHERE l_orderkey <> 1"}, "orders or lines"),
        ({"orders": "FROM temp.main.orders WHERE o_orderkey <> 1"}, "orders or lines"),
        ({"orders": "FROM temp.main.orders UNION ALL FROM temp.main.orders"}, "orders, distinct"),
        (
            {"customer": f"SELECT * REPLACE ({ONE_CENT_MORE}) FROM temp.main.customer"},
            "customer bal",
        ),
        ({"bank_north": "FROM temp.main.bank_north WHERE id > 0"}, "bank balances"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_the_checks_find_half_a_transaction(
    replaced: dict[str, str], broken: str, small_lake: tuple[str, dict[str, object]]
) -> None:
    root, expected = small_lake
    with demo_checks.deltalake_reader(root, {}) as reader:
        tampered = Tampered(reader, **replaced)
        checks = [*check_orders(tampered, expected), *check_bank(tampered, Decimal(100_000))]  # type: ignore[arg-type]
    assert any(broken in check.what and not check.holds for check in checks), checks


def test_the_demo_tables_lack_the_rows_that_the_demo_ingests_later(
    small_lake: tuple[str, dict[str, object]],
) -> None:
    root, expected = small_lake
    first = deltalake.DeltaTable(f"{root}/orders", version=0).to_pyarrow_table()
    assert isinstance(first, pa.Table)
    assert first.num_rows == int(str(expected["orders"])) - 20
