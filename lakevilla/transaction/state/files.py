"""The files of a transaction: what its operations have made, and what of it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakevilla.engines.base import Written
from lakevilla.errors import StoreError
from lakevilla.formats.files import DataFile
from lakevilla.ids import txn_in
from lakevilla.phases import during
from lakevilla.store.base import NEW, PutOutcome, Stored
from lakevilla.store.effects import Program, Put, parallel
from lakevilla.sublogs.operations import given_files
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState


def made_files(done: Done) -> list[str]:
    """The keys of the files that performing an operation made; those it was given are its source.

    Only the former may be dropped when it is undone: a redo makes them anew, and
    nobody could make the latter again.
    """
    given = {file.path for file in given_files(done.operation)}
    made = [file.path for file in done.change.adds]
    made += [file.path for file in done.change.change_files]
    return [f"{done.table}/{path}" for path in made if path not in given]


def own_files(txn: str, keys: Iterable[str]) -> list[str]:
    """Of keys that a sublog names, which may hold anything, those that bear the transaction's id.

    No others are its own to delete.
    """
    return [key for key in keys if txn_in(key) == txn]


def store_files(txn: TransactionState, location: str | None = None) -> Program[None]:
    """Store the files made so far (of one table): an engine is about to read them."""
    prefix = "" if location is None else f"{location}/"
    keys = [key for key in txn.work.bodies if key.startswith(prefix)]
    if not keys:
        return
    puts = [Put(key, txn.work.bodies[key], NEW) for key in keys]
    # Noted before they are asked for: an interruption in between leaves
    # some of them stored, and an abort must find them.
    txn.work.stored.extend(keys)
    with during("data", location):
        outcomes: list[PutOutcome] = yield from parallel(puts)
    for key, outcome in zip(keys, outcomes, strict=True):
        if not isinstance(outcome, Stored):
            raise StoreError(
                f"could not store {key}: nothing was committed, run the transaction again",
                txn_id=txn.id,
            )
        txn.work.held_bytes -= len(txn.work.bodies.pop(key))


def hold_written(
    txn: TransactionState, location: str, written: Iterable[Written]
) -> tuple[DataFile, ...]:
    """Note files that an engine has made: those that the commit is to store, and those stored."""
    written = tuple(written)
    for item in written:
        key = f"{location}/{item.file.path}"
        if item.body is None:
            txn.work.stored.append(key)
        else:
            hold_file(txn, key, item.body)
    return tuple(item.file for item in written)


def hold_file(txn: TransactionState, key: str, body: bytes) -> None:
    """Keep a file that was made in memory, until it is stored with others."""
    txn.work.bodies[key] = body
    txn.work.held_bytes += len(body)


def keep_files(txn: TransactionState, done: Done, bodies: Mapping[str, bytes]) -> None:
    """Note the files that an operation has made: some to be stored, the large ones stored."""
    for key, body in bodies.items():
        hold_file(txn, key, body)
    txn.work.stored.extend(key for key in made_files(done) if key not in bodies)
