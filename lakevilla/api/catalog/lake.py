"""The catalog as verbs of a lake."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, overload

import pyarrow as pa

from lakevilla.api.arguments import check_flag, check_number, check_text
from lakevilla.api.catalog.names import ListedTable, TablePage, last_name, parsed, token_of
from lakevilla.api.catalog.query import answered
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.refs import Refs
from lakevilla.api.run import begin_transaction
from lakevilla.api.snapshot import views, views_of
from lakevilla.api.table import Table, table_of
from lakevilla.errors import InvalidOperation
from lakevilla.lake.tables.discovery import ListedName, listed
from lakevilla.settings import shown

__all__ = ["Catalog"]

T = TypeVar("T")


class Catalog(Refs[Frame], Generic[Frame]):
    """The answers of a lake about its tables as a whole."""

    _client: LakeClient
    _executor: type[Executor[Frame]]

    @overload
    def tables(
        self,
        prefix: str | None = None,
        *,
        after: str | None = None,
        limit: int | None = None,
        details: Literal[True] = True,
    ) -> TablePage[Table[Frame]]: ...
    @overload
    def tables(
        self,
        prefix: str | None = None,
        *,
        after: str | None = None,
        limit: int | None = None,
        details: Literal[False],
    ) -> TablePage[ListedTable]: ...
    def tables(
        self,
        prefix: str | None = None,
        *,
        after: str | None = None,
        limit: int | None = None,
        details: bool = True,
    ) -> TablePage[Table[Frame]] | TablePage[ListedTable]:
        """Return the tables in HEAD, in the order of their names; all of them, or a page.

        Only their metadata is read, as by deltalake and pyiceberg: missing manifests and data
        files are found by reading the table, and by ``doctor`` and ``recover``. A table that
        can't be opened, such as an external one that was moved away, is left out: a
        ``LakeVillaWarning``, the log, the event ``left_out`` and ``doctor`` report the reason.

        Parameters
        ----------
        prefix : str, optional
            The beginning of their names.
        after : str, optional
            ``next`` of the page before. It is valid as long as the lake exists: a table that exists
            from the first page to the last is listed once, whatever is committed in between.
        limit : int, optional
            The maximum number of tables of a page. If not given, all.
        details : bool
            If False, no table is opened: a ``ListedTable`` has what HEAD says.

        Raises
        ------
        InvalidOperation
            ``after`` is no token of this lake's.
        """
        if prefix is not None:
            prefix = check_text("prefix", prefix)
        if limit is not None and (limit := check_number("limit", limit)) < 1:
            raise InvalidOperation("limit must be 1 or more; leave it out for all tables")
        details = check_flag("details", details)
        with begin_transaction(self._client, self._executor, read_only=True) as executor:
            if prefix is None and after is None and limit is None and details:
                return _page([table_of(executor, *one) for one in views(executor).items()], None)
            head = executor.state_of_lake()
            last = None if after is None else last_name(head, after)
            if head is None:
                return TablePage()
            with executor.verb_scope():
                found, more = executor.run(listed(head, prefix or "", last, limit))
            following = token_of(head, found[-1].key) if more else None
            if not details:
                return _page([self._listed(one) for one in found], following)
            opened = views_of(executor, {one.name: one.location for one in found})
            return _page([table_of(executor, *one) for one in opened.items()], following)

    def query(self, path: str, *, at: int | datetime | str | None = None) -> pa.Table:
        """Return the rows to which a path over the catalog leads.

        A path is made of steps: parts of a table's name (``*`` is any part, ``**`` one or more),
        then ``snapshots``, ``files``, ``columns``, ``statistics`` or ``commits``. Brackets after a
        step narrow it: by a predicate over its columns, or by a position, the newest last. The
        result has the columns of the last step, and before them the keys of the steps above.

        Parameters
        ----------
        path : str
            Such as ``/sales/*[rows > 0]/files[partition.region = 'Asia']``.
        at : int, datetime or str, optional
            A global version, an aware time, or the name of a ref. The present lake if not given.

        Raises
        ------
        InvalidOperation
            It is no path; or a step or column does not exist, and the message names those that do.
        TableNotFound, RefNotFound, VersionNotFound

        Examples
        --------
        >>> lake.query("/*[name LIKE 'st%']/columns")["name"].to_pylist()
        ['sku', 'qty']
        """
        steps = parsed(path)
        if isinstance(at, str):
            return type(self).query(self.on(at), path)
        options: dict[str, Any] = {"read_only": True}
        if isinstance(at, bool) or not (at is None or isinstance(at, int | datetime)):
            raise InvalidOperation(
                f"at is a global version, an aware datetime or the name of a ref, not {shown(at)}"
            )

        def begin(version: int | datetime | None) -> Executor[Frame]:
            executor = begin_transaction(self._client, self._executor, **options)
            if isinstance(version, datetime):
                executor.bind_to(None, version)
            elif version is not None:
                executor.bind_to(version, None)
            return executor

        with begin(at) as executor:
            return answered(executor, begin, steps)

    def _listed(self, one: ListedName) -> ListedTable:
        state, size = one.state, one.state.size
        return ListedTable(
            one.name,
            self._client.uri_of(one.location),
            state.format,
            state.table_id,
            state.guarded,
            *((None, None, None) if size is None else (size.files, size.rows, size.bytes)),
        )


def _page(tables: Iterable[T], following: str | None) -> TablePage[T]:
    page = TablePage(tables)
    page.next = following
    return page
