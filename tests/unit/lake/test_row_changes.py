"""Verdicts on whether later commits touch the rows that a transaction relied on."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from lakevilla.formats.base import Change
from lakevilla.formats.files import removal
from lakevilla.formats.layout import TableAlteration
from lakevilla.lake import row_changes
from lakevilla.lake.context import Context
from lakevilla.lake.row_changes import Verdict, change_of_lists, judge, net_change, still_fits
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


def _random_change(source: random.Random, live: set[str], gone: set[str]) -> Change:
    """Return a change that removes, adds and brings back some files; both sets follow it."""
    out = set(source.sample(sorted(live), source.randint(0, min(2, len(live)))))
    back = set(source.sample(sorted(gone), source.randint(0, min(1, len(gone)))))
    new = {str(source.random()) for _ in range(source.randint(0, 2))}
    live -= out
    live |= new | back
    gone |= out
    gone -= back
    return Change(
        adds=tuple(data_file(path, 0, 9) for path in sorted(new | back)),
        removes=tuple(removal(data_file(path, 0, 9)) for path in sorted(out)),
    )


@pytest.mark.cases(None)
@pytest.mark.parametrize("seed", range(100))
def test_two_lists_of_files_differ_by_the_files_of_the_net_change(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(seed)
    live, gone = {"a", "b", "c"}, set[str]()
    context = by_hand.make_context()
    by_hand.make_tail(context, [data_file(path, 0, 9) for path in sorted(live)])
    old = viewed(context)
    for _ in range(source.randint(1, 8)):
        by_hand.with_entry(context, context.tails["t"], _random_change(source, live, gone))
    new, tail = viewed(context), context.tails["t"]
    exact = outcome(net_change(context, old, new, tail))
    monkeypatch.setattr(row_changes, "_MANY_ENTRIES", -1)
    by_lists = outcome(change_of_lists(old, new, tail))
    assert by_lists is not None
    assert by_lists.adds.keys() == exact.adds.keys()
    assert by_lists.removes.keys() == exact.removes.keys()
    assert (by_lists.contract, by_lists.metadata) == (exact.contract, exact.metadata)


def test_lists_of_files_are_not_compared_while_the_entries_between_are_known() -> None:
    context = by_hand.make_context()
    by_hand.make_tail(context, (LOW,))
    old = viewed(context)
    by_hand.with_entry(context, context.tails["t"], Change(adds=(NEW,)))
    assert outcome(change_of_lists(old, viewed(context), context.tails["t"])) is None


def test_a_difference_of_lists_of_files_never_counts_as_rows_that_were_only_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_changes, "_MANY_ENTRIES", -1)
    context = by_hand.make_context(row_check_limit_bytes=0)
    by_hand.make_tail(context, (LOW, HIGH))
    old = viewed(context)
    moved = data_file("moved", 0, 9, data_change=False)
    by_hand.with_entry(context, context.tails["t"], rewritten(LOW, moved, data_change=False))
    net = outcome(change_of_lists(old, viewed(context), context.tails["t"]))
    assert net is not None
    assert net.may_be_moves
    where = parse_predicate("id = 5")
    assert outcome(judge(context, old, viewed(context), net, where)) is Verdict.CHANGED
