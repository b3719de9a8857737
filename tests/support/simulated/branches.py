"""Branches in the simulator: clients that make, write, read and end branches."""

import pyarrow as pa

from lakevilla.branches.change import delete_ref, protect
from lakevilla.branches.create import create_ref, open_ref
from lakevilla.branches.rebase import Wanted, rebase_branch
from lakevilla.errors import LakeVillaError
from lakevilla.lake.frozen.frozen import Frozen
from lakevilla.store.location import at_home
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.applying.apply import Settle
from lakevilla.transaction.verbs.read_write import append, bind_to_ref
from lakevilla_testing.histories.attempts import context_of
from tests.support.simulated.commits import add_to, begin, read


def makes(name="etl", at=None, kind="branch"):
    """Make a ref; return its name and entry, or the kind of the error."""

    def program(client):
        try:
            entry = yield from create_ref(
                context_of(client),
                name,
                kind,
                at,
                tables=None,
                absorb=None,
                protected=False,
                metadata={},
                created_by="",
            )
        except LakeVillaError as error:
            return error.kind
        return name, entry

    return program


def on_branch(client, name, work):
    """Run ``work(context)`` at a branch's home, or for a tag; return its result."""
    context = context_of(client)
    found = yield from open_ref(context, name)
    if isinstance(found, Frozen):
        return (yield from work(context, found))
    own = context.of_branch(found.held)
    return (yield from at_home(found.entry.epoch, work(own)))


def adds(amount=1, name="etl", table="a"):
    """Commit on a branch; return "committed", or the kind of the error."""

    def program(client):
        def work(context):
            txn = begin(client, context=context)
            yield from add_to(txn, table, amount)
            yield from commit(txn)
            return "committed"

        try:
            return (yield from on_branch(client, name, work))
        except LakeVillaError as error:
            return error.kind

    return program


def appends(number, name="etl", table="a"):
    """Add a row on a branch; return "committed", or the kind of the error."""
    rows = pa.Table.from_pylist([{"id": number, "balance": 1, "items": ""}])

    def program(client):
        def work(context):
            txn = begin(client, context=context)
            yield from append(txn, table, rows.to_reader())
            yield from commit(txn)
            return "committed"

        try:
            return (yield from on_branch(client, name, work))
        except LakeVillaError as error:
            return error.kind

    return program


def shows(name="etl", table="a"):
    """Read a ref."""

    def program(client):
        def work(context, frozen=None):
            txn = begin(client, context=context, read_only=True)
            if frozen is not None:
                bind_to_ref(txn, frozen)
            found = yield from read(txn, table)
            yield from commit(txn)
            return found

        return (yield from on_branch(client, name, work))

    return program


def ends(name="etl"):
    """Delete a ref; return None, or the kind of the error."""

    def program(client):
        try:
            yield from delete_ref(context_of(client), name)
        except LakeVillaError as error:
            return error.kind
        return None

    return program


def protects(name="etl"):
    """Protect a ref; return "protected", or the kind of the error."""

    def program(client):
        try:
            yield from protect(context_of(client), name, on=True)
        except LakeVillaError as error:
            return error.kind
        return "protected"

    return program


def rebases(name="etl", keys=None, on_conflict="error"):
    """Rebase a branch; return the entry, or the kind of the error."""

    def program(client):
        try:
            wanted = Wanted(keys or {}, Settle(on_conflict))
            entry, _ = yield from rebase_branch(context_of(client), name, wanted)
        except LakeVillaError as error:
            return error.kind
        return entry

    return program
