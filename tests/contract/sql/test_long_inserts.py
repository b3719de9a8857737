"""An INSERT of many constants: the rows are those of a short one, however it is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla import dbapi
from tests.support.places import Place

COLUMNS = {
    "k": pa.int64(),
    "small": pa.int16(),
    "price": pa.decimal128(12, 2),
    "ratio": pa.float64(),
    "name": pa.string(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "seen": pa.timestamp("us", "UTC"),
    "paid": pa.bool_(),
}
ROW = (
    "({k}, -3, {k}.25, 1e-3, 'it''s\n\u00fc {k}', '2024-02-29', TIMESTAMP '2024-01-01 10:00:00.5', "
    "'2024-01-01 10:00:00', TRUE)"
)
EMPTY = "({k}, NULL, .5, +7, '', DATE '1969-12-31', NULL, NULL, false)"


@pytest.fixture
def lake(quick_place: Place) -> Iterator[lv.Lake]:
    with quick_place.connect() as lake:
        for name in ("long", "short"):
            lake.create_table(name, pa.schema(list(COLUMNS.items())))
        yield lake


def statement(table: str, rows: int = 120, head: str = "") -> str:
    given = [(ROW if k % 3 else EMPTY).format(k=k) for k in range(rows)]
    return f"INSERT INTO {table} {head} VALUES {', '.join(given)}"


def by_session(lake: lv.Lake, text: str) -> int:
    with lake.session() as session:
        return session.sql(text).rows_inserted


def by_transaction(lake: lv.Lake, text: str) -> int:
    with lake.transaction() as txn:
        return txn.sql(text).rows_inserted


def by_dbapi(lake: lv.Lake, text: str) -> int:
    with dbapi.connect(lake) as connection:
        rows = connection.cursor().execute(text).rowcount
        connection.commit()
        return rows


@pytest.mark.parametrize("run", [by_session, by_transaction, by_dbapi])
def test_constants_have_the_values_of_a_statement_that_is_read_word_by_word(
    lake: lv.Lake, run: Callable[[lv.Lake, str], int]
) -> None:
    assert run(lake, statement("long")) == 120
    # A comment makes it a text that is no list of constants.
    assert run(lake, statement("short") + " /* word by word */") == 120
    long, short = (lake.read(name).sort_by("k") for name in ("long", "short"))
    assert long.equals(short)
    assert long["name"].to_pylist()[1] == "it's\n\u00fc 1"


def test_a_list_of_columns_leaves_the_others_null(lake: lv.Lake) -> None:
    rows = ", ".join(f"('{'x' * 40}', {k})" for k in range(120))
    with lake.transaction() as txn:
        txn.sql(f"INSERT INTO long (name, k) VALUES {rows};")
    found = lake.read("long").sort_by("k")
    assert found["k"].to_pylist() == list(range(120))
    assert found["day"].null_count == 120


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("(1, 2)", "VALUES lists must all be the same length"),
        (ROW.format(k=1).replace(" -3", " 3000000000"), "3000000000"),
        (ROW.format(k=1).replace("2024-02-29", "2024-02-30"), "2024-02-30"),
        (ROW.format(k=1).replace("TRUE", "'maybe'"), "maybe"),
    ],
)
def test_a_wrong_value_has_the_error_of_a_short_statement(
    lake: lv.Lake, row: str, message: str
) -> None:
    errors = []
    for comment in ("", " /* word by word */"):
        with lake.session() as session, pytest.raises(lv.LakeVillaError) as caught:
            session.sql(f"{statement('long')}, {row}{comment}")
        errors.append(str(caught.value).replace(comment, ""))
    assert message in errors[0]
    assert errors[0] == errors[1]
    assert lake.read("long").num_rows == 0


def test_the_number_of_columns_must_be_right(lake: lv.Lake) -> None:
    with lake.session() as session, pytest.raises(lv.InvalidOperation, match="make them match"):
        session.sql(statement("long", head="(k, small)"))


def test_a_redo_inserts_the_same_rows(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.sql(statement("long"))
        lake.run(lambda other: other.sql("INSERT INTO long (k) VALUES (-1)"))
    assert sorted(lake.read("long")["k"].to_pylist()) == [-1, *range(120)]


@pytest.mark.parametrize("value", ["DATE 'infinity'", "170141183460469231731687303715884105728"])
def test_an_error_of_a_value_names_the_column_of_the_table_or_of_the_query(
    lake: lv.Lake, value: str
) -> None:
    messages = []
    for comment in ("", "/* word by word */"):
        rows = ", ".join(f"({k}, {value})" for k in range(400))
        with pytest.raises(lv.InvalidOperation) as error:
            by_session(lake, f"INSERT INTO long (k, day) {comment} VALUES {rows}")
        messages.append(str(error.value))
    assert messages[0] == messages[1]
