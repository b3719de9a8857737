"""Commit the optimizes that dead processes have saved, and not committed.

An optimize in a queue is saved once its files are made (docs/design/0037-upkeep.md). If its process
dies before the commit, its files have all the rows that the table needs: whoever optimizes the
table next commits them, and rewrites nothing a second time.
"""

from __future__ import annotations

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.lake.context import Context
from lakevilla.maintenance.stale_places import watch_records
from lakevilla.maintenance.transactions import Records, list_records, read_records
from lakevilla.results import OptimizeResult
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Optimize
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.abort import give_up
from lakevilla.transaction.verbs.optimize import result_of
from lakevilla.transaction.verbs.save import load_sublog, resume


def commit_left(context: Context, location: str, owner: str) -> Program[list[OptimizeResult]]:
    """Commit the saved optimizes of a table whose owners don't renew their records for a lease.

    One LIST if no transaction has a record. This waits for a lease at most, and only if a saved
    optimize of the table is found that is not of ``owner``, this process.
    """
    listed = yield from list_records()
    records = yield from read_records(listed)
    saved = yield from _saved(records, location, owner)
    watched = {txn: records.listed[txn] for txn in saved}
    dead, _, _ = yield from watch_records(context, watched, records.records, waits=False)
    done = []
    for txn_id in sorted(dead):
        result = yield from _committed(context, txn_id, owner)
        if result is not None:
            done.append(result)
    return done


def _saved(records: Records, location: str, owner: str) -> Program[list[str]]:
    """Return the transactions that are saved optimizes of the table, and of other processes."""
    found = []
    for txn_id, record in records.records.items():
        is_own = bool(owner) and record.owner == owner
        if is_own or not record.sublog or record.tables != (location,):
            continue
        try:
            sublog = yield from load_sublog(txn_id, record.sublog)
        except StoreError:
            raise
        except LakeVillaError:
            continue  # it is damaged, or of a newer release
        operations = [one.operation for one in sublog.operations]
        if len(operations) == 1 and isinstance(operations[0], Optimize):
            found.append(txn_id)
    return found


def _committed(context: Context, txn_id: str, owner: str) -> Program[OptimizeResult | None]:
    """Commit a saved optimize; None if it has ended, or can't be committed any more.

    The table is optimized without it then, and gc deletes its files.
    """
    try:
        txn = yield from resume(context, txn_id, owner)
    except StoreError:
        raise
    except LakeVillaError:
        return None
    try:
        (done,) = txn.work.done
        planned = done.operation
        return result_of(planned, done, (yield from commit(txn)))
    except StoreError:
        raise
    except LakeVillaError:
        return None
    finally:
        yield from give_up(txn)  # has no effect on a committed transaction
