"""Files of operations that are performed together, fetched in one round instead of one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import file_key
from lakevilla.formats.layout import Layout
from lakevilla.phases import during
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, parallel
from lakevilla.sublogs.binding import locate
from lakevilla.sublogs.operations import Delete, Merge, Overwrite, Update
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState

#: Of a larger file an engine reads the parts that it needs, which is less than all of it.
FILE_BYTES = 4 * 1024 * 1024
#: What is fetched in one round at most. What comes after it waits for the next round.
ROUND_BYTES = 64 * 1024 * 1024


class Fetching:
    """The files of some operations, fetched when the first of them is performed.

    Each is held until all that were fetched in its round are done. A hint and nothing
    more: what is not held an engine reads itself, and a file never changes under its name.
    """

    def __init__(self, txn: TransactionState, waiting: Iterable[Done], held: ExitStack) -> None:
        self._txn, self._waiting, self._held = txn, deque(waiting), held

    def before(self, done: Done) -> Program[None]:
        """Have the files at hand that ``done`` reads, with those of the next ones."""
        if not self._waiting or self._waiting[0] is not done:
            return
        self._held.close()
        wanted: dict[str, int] = {}
        tables: set[str] = set()
        left = ROUND_BYTES
        while self._waiting and self._waiting[0].table not in tables:
            sizes = yield from self._files(self._waiting[0])
            size = sum(sizes.values())
            if size > left and self._waiting[0] is not done:
                break
            # On what this one leaves behind, the next one on its table works.
            tables.add(self._waiting.popleft().table)
            if size <= left and max(sizes.values(), default=0) <= FILE_BYTES:
                wanted |= sizes
                left -= size
        with during("data"):
            found = yield from parallel([get(key) for key in wanted])
        # What is missing or of another size is told by the engine, which names it.
        bodies = {
            key: one.body
            for (key, size), one in zip(wanted.items(), found, strict=True)
            if isinstance(one, Found) and len(one.body) == size
        }
        self._held.enter_context(self._txn.context.engine.holding(bodies))

    def _files(self, done: Done) -> Program[dict[str, int]]:
        """Keys and sizes of the stored files that an operation may read."""
        snapshot = self._txn.work.tables[done.table].snapshot
        try:
            reads, where = _reading(done, snapshot.layout)
        except InvalidOperation:
            return {}  # what is wrong with it is told when it is performed
        if not reads:
            return {}
        with during("metadata", done.table):
            files = yield from snapshot.files(where)
        paths, sizes = files.column("path").to_pylist(), files.column("size").to_pylist()
        keys = {file_key(done.table, path): size for path, size in zip(paths, sizes, strict=True)}
        return {key: size for key, size in keys.items() if key not in self._txn.work.bodies}


def _reading(done: Done, layout: Layout) -> tuple[bool, Expr | None]:
    """Whether an operation reads files of its own table, and for which rows."""
    match locate(done.operation, layout):
        case Update(where=where) | Delete(where=where):
            return True, bind(where, layout.schema)
        case Overwrite(where=where) if where is not None:
            return True, bind(where, layout.schema)
        case Merge():
            return True, None
        case _:
            return False, None


@contextmanager
def fetching(txn: TransactionState, waiting: Iterable[Done]) -> Iterator[Fetching]:
    """For the time in which these operations are performed, in this order."""
    wants = txn.context.engine.reads_by_parts
    with ExitStack() as held:
        yield Fetching(txn, waiting if wants else (), held)
