"""Views in statements, and the verbs that define and drop them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from lakevilla.api.client.names import refuse_outside
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.replacing import Place, is_there, place_of
from lakevilla.api.frame import Frame
from lakevilla.errors import InvalidOperation, LakeVillaError, TableExists, TableNotFound
from lakevilla.formats.views import VIEW_PROPERTY, ViewDefinition, encoded, view_of
from lakevilla.global_log.head import FORMAT_WITH_VIEWS, Head
from lakevilla.global_log.repo import load_tables
from lakevilla.sql.catalog import NameRange, is_reserved
from lakevilla.sql.statements.select import Select, quoted, select_of
from lakevilla.sql.statements.views import ViewText, with_names, with_views
from lakevilla.sublogs.operations import Replace
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.verbs.catalog.names import bind_if_made
from lakevilla.transaction.verbs.catalog.rows import view_rows
from lakevilla.transaction.verbs.create_table import whole_or_not_at_all
from lakevilla.transaction.verbs.read_write import (
    create,
    layout_of,
    layout_to_replace,
    observe,
    replace,
)

__all__ = [
    "expanded",
    "is_view",
    "make_view",
    "may_have_views",
    "names_of_views",
    "refuse_kind",
    "name_the_view",
    "mistaken_view",
]


def expanded(
    executor: Executor[Frame],
    select: Select,
    frames: Collection[str],
    *,
    within: Sequence[str] = (),
) -> Select:
    """Return a query with the text of each view that it names.

    ``frames``: names that mean rows of the caller. ``within``: the view that the query defines.
    HEAD says what is a view. Where the known one was too old, ``executor.looks_for_views`` is set,
    and each table is looked at.

    Raises
    ------
    InvalidOperation
        A view reads itself, or its text is in another dialect.
    TableNotFound
        A table that a view shows does not exist.
    """
    if not (executor.looks_for_views or within or may_have_views(executor)):
        return select
    views = _Views(executor)
    with executor.verb_scope():
        query = views.named(select, frames, tuple(within))
    return with_views(query, views.texts, executor.dialect)


class _Views:
    """The views of one query, each before those that read it."""

    def __init__(self, executor: Executor[Any]) -> None:
        self._executor = executor
        self._called: dict[str, str] = {}
        self.texts: list[ViewText] = []

    def named(self, select: Select, frames: Collection[str], within: tuple[str, ...]) -> Select:
        """Return the query, which names the views by their new names; note their texts."""
        names: dict[str, str] = {}
        executor = self._executor
        meant = {
            path: (executor.resolve_in_sql(name), name)
            for path, name in select.spellings
            if not (path in frames or is_reserved(path))
        }
        head = _known_head(executor)
        executor.run(load_tables(head, [location for location, _ in meant.values()]))
        for path, (location, name) in meant.items():
            called = self._called.get(location) or self._noted(location, name, within)
            if called is not None:
                names[path] = called
        return with_names(select, names, executor.dialect)

    def _noted(self, location: str, name: str, within: tuple[str, ...]) -> str | None:
        """Note the view at a location, after the views that it reads; None if it is a table."""
        if location in within:
            through = " and ".join(dict.fromkeys(within[within.index(location) + 1 :]))
            raise InvalidOperation(
                f"view {location} reads itself{f', through {through}' if through else ''}: define "
                "it by other tables",
                table=location,
            )
        executor = self._executor
        if not (executor.looks_for_views or _is_known_as_view(executor, location)):
            return None
        layout = executor.run(layout_of(executor.state, location, reading=True))
        view = view_of(layout)
        if view is None:
            return None
        if view.dialect != executor.dialect:
            raise InvalidOperation(
                f"view {name} is in the SQL of {view.dialect}, and this lake runs "
                f"{executor.dialect}: define it again here by CREATE OR REPLACE VIEW",
                table=location,
            )
        observe(executor.state, location, None)
        try:
            query = self.named(select_of(view.sql, None, view.dialect), (), (*within, location))
        except LakeVillaError as error:
            name_the_view(error, name)
            raise
        called = f"__lakevilla_view_{len(self.texts)}"
        self._called[location] = called
        self.texts.append(ViewText(called, view.columns, query.sql))
        return called


def mistaken_view(
    executor: Executor[Frame], statement: Select, frames: Collection[str]
) -> str | None:
    """Return the first view of a query that can't be queried itself, or None."""
    for path, name in statement.spellings:
        if path in frames or is_reserved(path):
            continue
        with suppress(LakeVillaError):
            if not is_view(executor, name):
                continue
            one = f"SELECT * FROM {quoted(path, executor.dialect)}"
            query = expanded(executor, select_of(one, None, executor.dialect), ())
            try:
                executor.columns(query, {}, {})
            except LakeVillaError:
                return name
    return None


def names_of_views(executor: Executor[Frame]) -> list[str]:
    """Return the names of the views that the transaction sees."""
    with executor.verb_scope():
        executor.run(bind_if_made(executor.state))
        if not may_have_views(executor):
            return []
        return list(executor.run(view_rows(executor.state, NameRange())))


def is_view(executor: Executor[Frame], name: str) -> bool:
    """Return whether the transaction sees a view of that name; False without a table."""
    with suppress(TableNotFound), executor.verb_scope("open", name):
        location = executor.resolve(name)
        return executor.run(layout_of(executor.state, location, probing=True)).view is not None
    return False


def refuse_kind(executor: Executor[Frame], name: str, wanted: str) -> None:
    """Refuse a verb of views on a table, and one of tables on a view, where one is there."""
    if wanted == "table" and not may_have_views(executor):
        return
    if not is_there(executor, name):
        return
    found = "view" if is_view(executor, name) else "table"
    if found != wanted:
        raise InvalidOperation(
            f"{name} is a {found}, and no {wanted}: DROP {found.upper()} {name} drops it",
            table=name,
        )


def make_view(
    executor: Executor[Frame],
    name: str,
    view: ViewDefinition,
    *,
    comment: str | None,
    exist_ok: bool,
    replaces: bool,
) -> None:
    """Define a view, whose query is bound now, to find its mistakes and its columns.

    Raises
    ------
    TableExists
        The name is that of a table, or of a view and the statement does not replace it.
    InvalidOperation
        The query can't be that of a view.
    """
    there = is_there(executor, name)
    if there and exist_ok:
        return
    if there and replaces:
        refuse_kind(executor, name, "view")
    if there and not replaces:
        found = "view" if is_view(executor, name) else "table"
        instead = "CREATE OR REPLACE VIEW defines it again" if found == "view" else "write to it"
        raise TableExists(
            f"{found} {name} exists already: {instead}, or choose another name", table=name
        )
    location = executor.resolve(name, also_renamed=True)
    schema = _columns(executor, location, name, view)
    properties = {VIEW_PROPERTY: encoded(view)} | ({"comment": comment} if comment else {})
    place = place_of(executor, name, replaces=replaces)
    if place is not None:
        _define_again(executor, name, schema, properties, place)
        return
    with executor.verb_scope("create_view", name):
        executor.state.check_open("create_view")
        refuse_outside(executor.client.root, name, location)
        executor.client.ensure_safe_store()
        with whole_or_not_at_all(executor.state, location):
            executor.run(create(executor.state, location, schema, (), properties, "delta"))
        executor.save_if_due()


def _define_again(
    executor: Executor[Frame],
    name: str,
    schema: pa.Schema,
    properties: Mapping[str, str],
    place: Place,
) -> None:
    with executor.verb_scope("create_view", name), place.block:
        location = executor.begin_write(name, "create_table")
        operation = Replace(
            location,
            (),
            None,
            schema.serialize().to_pybytes(),
            replaces_schema=True,
            properties=dict(properties),
            revives=place.revives,
            after_drop=place.after_drop,
        )
        layout = executor.run(layout_to_replace(executor.state, operation))
        if executor.state.work.tables[location].snapshot.format != "delta":
            raise TableExists(
                f"table {location} was an Iceberg table, whose path can't become a view: choose "
                "another name",
                table=location,
            )
        executor.run_verb(replace(executor.state, operation, layout, None))


def _columns(
    executor: Executor[Frame], location: str, name: str, view: ViewDefinition
) -> pa.Schema:
    """Return the columns that a view has now."""
    select = select_of(view.sql, None, executor.dialect)
    reserved = [path for path in select.tables if is_reserved(path)]
    if reserved:
        raise InvalidOperation(f"a view can't show the catalog ({reserved[0]}): query it by itself")
    if location in [executor.resolve_in_sql(one) for _, one in select.spellings]:
        raise InvalidOperation(f"view {name} would read itself", table=name)
    query = expanded(executor, select, (), within=(location,))
    found = executor.columns(query, {}, {})
    if view.columns and len(view.columns) != len(found):
        raise InvalidOperation(
            f"view {name} names {len(view.columns)} columns, and its query has {len(found)}"
        )
    fields = [
        field.with_name(column).with_nullable(True)
        for field, column in zip(found, view.columns or found.names, strict=True)
    ]
    return pa.schema(fields)


def may_have_views(executor: Executor[Frame]) -> bool:
    """Return whether the lake may have a view, by the HEAD that is known, or the transaction."""
    state, head = executor.state, _known_head(executor)
    if head is not None and head.format >= FORMAT_WITH_VIEWS:
        return True
    return state.state is Status.OPEN and any(
        state.work.tables[done.table].snapshot.is_view for done in state.work.done
    )


def _is_known_as_view(executor: Executor[Frame], location: str) -> bool:
    working = executor.state.work.tables.get(location)
    if working is not None:
        return working.snapshot.is_view
    head = _known_head(executor)
    state = None if head is None else head.tables.peek(location)
    return state is not None and state.view


def _known_head(executor: Executor[Any]) -> Head | None:
    """Return the HEAD to which the transaction is bound, or else the newest known one."""
    held = executor.state.bound.held or executor.client.context.held
    return None if held is None else held.head


def name_the_view(error: LakeVillaError, view: str) -> None:
    """Say in an error that it is about what a view reads."""
    if not error.message.startswith("view "):
        error.message = f"view {view}: {error.message}"
        error.args = (error.message, *error.args[1:])
