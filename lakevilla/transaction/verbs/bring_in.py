"""Replace the files that a table names in other tables' directories by files of its own.

The store copies them; files with deleted rows are rewritten. No row changes, so other transactions
see only that the rows moved to other files.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lakevilla.engines.base import TableInput
from lakevilla.engines.partitions import partition_directory
from lakevilla.errors import VersionNotFound
from lakevilla.formats.delta.deletion_vectors import paths_of
from lakevilla.formats.files import DataFile, data_files, file_key, files_from_structs
from lakevilla.lake.frozen.frozen import key_below
from lakevilla.lake.frozen.kept import outside
from lakevilla.phases import during
from lakevilla.store.effects import Program, copy_all
from lakevilla.sublogs.operations import Bin, Optimize
from lakevilla.transaction.state.files import hold_written, store_files
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import touch
from lakevilla.transaction.verbs.read_write import execute


def bring_in(txn: TransactionState, location: str) -> Program[Done | None]:
    """Copy the files in other tables' directories that a table names; None if it names none.

    A table that only a clone shows becomes a table of the lake, even if it has no files.

    Raises
    ------
    VersionNotFound
        A file does not exist any more.
    """
    txn.check_write(location, "keep")
    yield from touch(txn, [location], probing=True, access="write")
    snapshot, view = txn.work.tables[location].snapshot, txn.work.tables[location].view
    snapshot.check_writable()
    with during("metadata", location):
        files = data_files((yield from snapshot.files()))
    elsewhere = [file for file in files if _is_elsewhere(txn, location, file)]
    if not elsewhere and view.mount is None:
        return None
    whole = [file for file in elsewhere if file.deletion_vector is None and not file.deletes]
    bins = yield from _copied(txn, location, whole)
    rest = [file for file in elsewhere if file.deletion_vector is not None or file.deletes]
    bins += yield from _written(txn, location, rest)
    yield from store_files(txn, location)
    operation = Optimize(location, tuple(bins), snapshot.metadata, {"keep": "true"}, len(files))
    return (yield from execute(txn, operation, "keep"))


def _is_elsewhere(txn: TransactionState, location: str, file: DataFile) -> bool:
    keys = {file_key(location, path) for path in paths_of(location, file)}
    return bool(outside(txn.context, keys))


def _copied(txn: TransactionState, location: str, files: Sequence[DataFile]) -> Program[list[Bin]]:
    """Copy files without deleted rows; return the copies, with all metadata of the files."""
    name = txn.file_namer
    paths = [name(partition_directory(list(file.partition_values.items()))) for file in files]
    keys = [f"{location}/{path}" for path in paths]
    txn.work.stored.extend(keys)
    sources = [key_below(txn.context.root, file.path) for file in files]
    with during("data", location):
        missing = yield from copy_all(list(zip(sources, keys, strict=True)))
    if missing is not None:
        path = files[sources.index(missing)].path
        raise VersionNotFound(
            f"table {location}: {path} was removed: the clean-up of other clients does not know "
            "clones (docs/clones.md)",
            table=location,
            txn_id=txn.id,
        )
    return [
        Bin(
            (file.ref,),
            (msgspec.structs.replace(file, path=path, raw_path=None, data_change=False),),
        )
        for file, path in zip(files, paths, strict=True)
    ]


def _written(txn: TransactionState, location: str, files: Sequence[DataFile]) -> Program[list[Bin]]:
    """Write the live rows of files with deleted rows to files of the table's own."""
    if not files:
        return []
    layout = txn.work.tables[location].snapshot.layout
    name = txn.file_namer
    tables = [TableInput(layout, files_from_structs([file])) for file in files]
    with during("data", location):
        written = yield from txn.context.engine.compact(tables, (), name)
    bins_of_file = [hold_written(txn, location, some) for some in written]
    return [
        Bin((file.ref,), tuple(msgspec.structs.replace(one, data_change=False) for one in some))
        for file, some in zip(files, bins_of_file, strict=True)
    ]
