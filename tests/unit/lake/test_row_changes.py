"""Verdicts on whether later commits touch the rows that a transaction relied on."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakevilla.formats.base import Change
from lakevilla.formats.layout import TableAlteration
from lakevilla.lake.context import Context
from lakevilla.lake.row_changes import Verdict, judge, net_change, still_fits
from lakevilla.lake.view import View, build_view
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.store.effects import Program
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome, rewritten

LOW, HIGH = data_file("low", 0, 9), data_file("high", 10, 19)


class Digests:
    """A stub of an engine with the digest of the rows of each file, by path."""

    def __init__(self, **digests: str) -> None:
        self.digests = digests

    def matching_rows(self, rows: object, where: object) -> Program[str]:
        yield from ()
        files = rows.files["path"].to_pylist()  # type: ignore[attr-defined]
        return "".join(sorted(self.digests[path] for path in files))


def judged(change: Change, where: str | None, *, limit: int = 0, engine: object = None) -> Verdict:
    context = by_hand.make_context(row_check_limit_bytes=limit)
    context.engine = engine  # type: ignore[assignment]
    by_hand.make_tail(context, (LOW, HIGH))
    old = viewed(context)
    by_hand.with_entry(context, context.tails["t"], change)
    new = viewed(context)
    net = outcome(net_change(context, old, new, context.tails["t"]))
    predicate = None if where is None else parse_predicate(where)
    return outcome(judge(context, old, new, net, predicate))


def viewed(context: Context) -> View:
    return outcome(build_view(context, None, "t", context.tails["t"]))


NEW = data_file("new", 5, 5)


@pytest.mark.parametrize(
    ("change", "where", "verdict"),
    [
        (Change(), None, Verdict.UNTOUCHED),
        (Change(adds=(NEW,)), "id > 5", Verdict.UNTOUCHED),
        (Change(adds=(NEW,)), "id = 5", Verdict.CHANGED),
        (Change(adds=(NEW,)), None, Verdict.CHANGED),
        (rewritten(HIGH), "id < 10", Verdict.UNTOUCHED),
        (rewritten(HIGH), "id < 11", Verdict.CHANGED),
        (
            rewritten(LOW, data_file("moved", 0, 9, data_change=False), data_change=False),
            "id = 5",
            Verdict.MOVED,
        ),
        # Only the added file is marked as moved, so the rows count as changed.
        (rewritten(LOW, data_file("moved", 0, 9, data_change=False)), "id = 5", Verdict.CHANGED),
    ],
)
def test_a_verdict_needs_no_rows_if_files_and_statistics_are_enough(
    change: Change, where: str | None, verdict: Verdict
) -> None:
    assert judged(change, where) is verdict


@pytest.mark.parametrize(("after", "verdict"), [("x", Verdict.MOVED), ("y", Verdict.CHANGED)])
def test_rows_of_small_rewritten_files_are_compared(after: str, verdict: Verdict) -> None:
    change = rewritten(LOW, data_file("other", 0, 9))
    engine = Digests(low="x", other=after)
    assert judged(change, "id = 5", limit=200, engine=engine) is verdict
    # Files beyond the limit are not read: the rows count as changed.
    assert judged(change, "id = 5", limit=199, engine=engine) is Verdict.CHANGED


INNER = pa.struct([("a", pa.int64()), ("t", pa.list_(pa.struct([("u", pa.int64())])))])


def struct(*fields: tuple[str, pa.DataType] | pa.Field) -> pa.DataType:
    return pa.struct(list(fields))


@pytest.mark.parametrize(
    ("then", "fits"),
    [
        (struct(*INNER, ("b", pa.string())), True),
        (struct(INNER.field("a"), ("t", pa.list_(struct(("u", pa.int64()), ("v", INNER))))), True),
        (struct(*INNER, pa.field("b", pa.string(), nullable=False)), False),
        (struct(INNER.field("a")), False),
        (struct(("a", pa.int32()), INNER.field("t")), False),
        (struct(pa.field("a", pa.int64(), nullable=False), INNER.field("t")), False),
        (struct(INNER.field("a"), ("t", pa.list_(pa.int64()))), False),
    ],
)
def test_files_fit_a_table_whose_structs_have_got_optional_fields(
    then: pa.DataType, fits: bool
) -> None:
    context = by_hand.make_context()
    old = by_hand.make_tail(context, (LOW,)).snapshot
    old = old.apply(by_hand.DELTA.merge_schema(old, pa.schema([("s", INNER)])))
    schema = pa.schema([*list(old.layout.schema)[:-1], pa.field("s", then)])
    new = old.apply(by_hand.DELTA.replace_schema(old, schema))
    layout = replace(new.layout, properties=old.layout.properties)
    assert still_fits(old.layout, layout) == fits


def test_a_new_field_with_the_name_of_an_older_one_makes_files_unfit() -> None:
    context = by_hand.make_context()
    old = by_hand.make_tail(context, (LOW,)).snapshot
    mapped = TableAlteration(set_properties={"delta.columnMapping.mode": "name"})
    old = old.apply(by_hand.DELTA.alter(old, mapped))
    old = old.apply(by_hand.DELTA.merge_schema(old, pa.schema([("s", INNER)])))
    renamed = old.apply(by_hand.DELTA.alter(old, TableAlteration(rename_columns={"s.a": "b"})))
    added = TableAlteration(add_columns=pa.schema([("s.a", pa.int64())]))
    again = renamed.apply(by_hand.DELTA.alter(renamed, added))
    assert still_fits(old.layout, renamed.layout)
    assert not still_fits(old.layout, again.layout)
    assert still_fits(renamed.layout, again.layout)


@pytest.mark.parametrize(
    ("request_", "fits"),
    [
        ({"add_columns": pa.schema([("note", pa.string())])}, True),
        ({"add_constraints": {"small": "id < 100"}}, False),
        ({"set_properties": {"delta.enableChangeDataFeed": "true"}}, False),
        ({"set_properties": {"note": "x"}}, True),
    ],
)
def test_files_fit_a_changed_table_if_their_rows_need_not_meet_more(
    request_: dict[str, object], fits: bool
) -> None:
    context = by_hand.make_context()
    old = by_hand.make_tail(context, (LOW,)).snapshot
    new = old.apply(by_hand.DELTA.alter(old, TableAlteration(**request_)))  # type: ignore[arg-type]
    assert still_fits(old.layout, old.layout)
    assert still_fits(old.layout, new.layout) == fits
    if "add_constraints" in request_:
        assert still_fits(new.layout, old.layout), "one that was taken away asks for less"
