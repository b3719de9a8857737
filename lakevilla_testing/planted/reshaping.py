"""Planted bugs of tables whose columns change, or that are redefined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lakevilla.errors import StoreError
from lakevilla.formats import layout as fields
from lakevilla.global_log import head, repo
from lakevilla.global_log.repo import lake_key
from lakevilla.lake import row_changes, view
from lakevilla.lake.context import Context
from lakevilla.lake.publishing import replay_pending
from lakevilla.lake.tables import registration
from lakevilla.sql.expressions.tree import Column, Expr, columns, substitute
from lakevilla.store.effects import Program, delete
from lakevilla.sublogs import binding
from lakevilla.sublogs.operations import Alter, Operation
from lakevilla.transaction.commit import upload as commit_object
from lakevilla_testing.planted.bugs import attribute, instead, planted


@planted(first_seed=13, kinds=("reshape", "lists"), reshaped=True)
def located_by_name() -> Iterator[None]:
    """A predicate's names are looked up in whatever schema it is checked against."""

    def located(expr: Expr, *_: Any, **__: Any) -> Expr:
        return substitute(expr, lambda column: Column(column.path, column.table))

    with instead(fields.located, located):
        yield


@planted(
    first_seed=19, kinds=("reshape", "reshape", "lists"), reshaped=True, foreign=(), intensity=0.0
)
def renames_follow_names() -> Iterator[None]:
    """A rename that is performed again renames its column even if other clients have renamed it
    since.
    """

    def locate(operation: Operation, layout: Any) -> Operation:
        if not isinstance(operation, Alter):
            return binding_locate(operation, layout)
        request = dict(operation.request)
        if "rename_columns" in request:
            request["rename_columns"] = {
                ".".join(fields.path_of(layout, operation.fields.named[old]) or (old,)): new
                for old, new in request["rename_columns"].items()
            }
        return msgspec.structs.replace(operation, request=request)

    binding_locate = binding.locate
    with instead(binding.locate, locate):
        yield


@planted(
    first_seed=9, kinds=("add", "reshape"), reshaped=True, foreign=("reshape",), transactions=6
)
def unfit_rows_block_for_ever() -> Iterator[None]:
    """Rows that violate another client's new constraint make each replay raise an error."""

    def still_fits(old: Any, new: Any) -> bool:
        if not row_changes.still_fits(old, new):
            raise StoreError("rows no longer fit")
        return True

    with attribute(replay_pending, "still_fits", still_fits):
        yield


@planted(58, kinds=("reshape", "reshape", "lists"), reshaped=True, intensity=0.0, formats="iceberg")
def judged_on_the_older_schema() -> Iterator[None]:
    """The same as ``located_by_name``, at the check against the commits between.

    A name that this state lacks queries all rows: only names in both states have the bug.
    """

    def as_of(where: Expr | None, layout: Any) -> Expr | None:
        names = set(layout.schema.names)
        if where is None or not all(column.path[0] in names for column in columns(where)):
            return None
        return substitute(where, lambda column: Column(column.path, column.table))

    with instead(fields.as_of, as_of):
        yield


@planted(for_histories=False)
def taken_up_while_its_data_goes() -> Iterator[None]:
    """A dropped table is reused though another client has begun to delete its data (note 47)."""

    def check_left(location: str, state: Any, tail: Any, *, revives: bool) -> None:
        if not revives:
            original(location, state, tail, revives=revives)

    original = view._check_left
    with attribute(view, "_check_left", check_left):
        yield


@planted(for_histories=False)
def entries_by_an_old_head() -> Iterator[None]:
    """A writer by log entry never checks whether its table was dropped (note 50)."""

    def head_of_late(self: Context, seconds: float) -> Program[None]:
        yield from ()

    with attribute(Context, "head_of_late", head_of_late):
        yield


@planted(for_histories=False)
def claims_let_go_late() -> Iterator[None]:
    """A client that releases a table deletes its present claim, whoever owns the claim."""

    def release_claim(location: str, *_: Any) -> Program[bool]:
        yield from delete(lake_key(location))
        return True

    with instead(repo.release_claim, release_claim):
        yield


@planted(for_histories=False)
def claims_left_as_they_are() -> Iterator[None]:
    """A client that adds a table relies on an existing claim of its lake (note 51)."""

    def rewritten(*_: Any) -> Program[None]:
        yield from ()

    with attribute(repo, "_rewritten", rewritten):
        yield


@planted(for_histories=False)
def claims_given_away_unseen() -> Iterator[None]:
    """HEAD does not record which claim is being given away (note 51)."""

    def successor(old: Any, *, tables: Any = None, **named: Any) -> Any:
        without = {
            place: msgspec.structs.replace(state, released_by="")
            for place, state in (tables or {}).items()
        }
        return original(old, tables=without, **named)

    original = head.successor
    with attribute(registration, "successor", successor):
        yield


@planted(for_histories=False)
def rows_of_the_old_definition() -> Iterator[None]:
    """Foreign appends before the publishing of a redefining commit stay in the table."""

    def redefined(*_: Any) -> bool:
        return True

    with attribute(commit_object, "rows_fit", redefined):
        yield
