"""Planted bugs of the protocol: the simulation must find them, or it would prove nothing.

Each is a context manager that removes one precaution from the library, and a plan in which that
precaution matters. The names say what is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from lakevilla.errors import VersionNotFound
from lakevilla.global_log import repo
from lakevilla.global_log.head import HEAD_KEY, split_page
from lakevilla.global_log.keys import bound, key_object, new_record
from lakevilla.ids import Ids
from lakevilla.lake import applicability, past, row_changes, view
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.publishing import publish, replay_pending
from lakevilla.lake.publishing import publish as turn
from lakevilla.lake.row_changes import compose
from lakevilla.lake.view import Placement
from lakevilla.maintenance.gc import garbage, listing
from lakevilla.maintenance.gc import gc as fence
from lakevilla.settings import Settings
from lakevilla.store import readback
from lakevilla.store.base import ABSENT, ANY, Found, GetOutcome, Match, Refused
from lakevilla.store.codec import encode
from lakevilla.store.effects import Program, delete, put
from lakevilla.transaction.commit import by_log_entry, decide, upload
from lakevilla.transaction.commit.together import group as candidate
from lakevilla.transaction.commit.together import join, replacing
from lakevilla.transaction.commit.together import join as behind
from lakevilla.transaction.redo import rebase, replay
from lakevilla.transaction.state.files import store_files
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.validation import overlap, validate
from lakevilla.transaction.verbs import bind, idempotency
from lakevilla.transaction.verbs import save as saving
from lakevilla_testing.histories.plan import Level
from lakevilla_testing.planted.bugs import attribute, instead, nothing, planted
from lakevilla_testing.world.client import ClientClock

_RI = (Feature.R | Feature.I,)
_LOG = (Feature.NONE, Feature.R)
_BRISK = Settings(max_age_seconds=60.0, outcome_retention_seconds=7200.0)


def _this(known: Any) -> Program[Any]:
    yield from ()
    return known


def _old_tail(context: Any, tail: Tail) -> Program[Tail]:
    yield from ()
    return tail


# --------------------------------------------------------------- the store


@planted(first_seed=5, features=_LOG, kinds=("lists", "add"), intensity=2.0)
def no_read_back() -> Iterator[None]:
    """A refusal counts as another client's write, even if the client's own write is its cause."""
    original = readback.classify

    def classify(effect: Any, may_have_landed: bool, seen: GetOutcome) -> Any:
        changed = not isinstance(effect.condition, Match) or (
            isinstance(seen, Found) and seen.token != effect.condition.token
        )
        if changed and isinstance(seen, Found):
            return Refused(seen)
        return original(effect, may_have_landed, seen)

    with instead(original, classify), attribute(by_log_entry, "_own_version", nothing):
        yield


@planted()
def delete_for_overwrite() -> Iterator[None]:
    """HEAD is deleted and created again, instead of replaced."""

    def replace_head(held: Any, successor: Any) -> Program[Any]:
        yield from delete(HEAD_KEY)
        return (yield from put(HEAD_KEY, encode(successor), ABSENT))

    with instead(repo.replace_head, replace_head):
        yield


@planted()
def match_dropped() -> Iterator[None]:
    """A client replaces HEAD unconditionally."""

    def replace_head(held: Any, successor: Any) -> Program[Any]:
        return (yield from put(HEAD_KEY, encode(successor), ANY))

    with instead(repo.replace_head, replace_head):
        yield


@planted()
def names_reused() -> Iterator[None]:
    """Nonces repeat, so a file with the same name replaces an earlier one."""
    with attribute(Ids, "nonce", lambda self: "0" * 32):
        yield


# ----------------------------------------------------------- the commit point


@planted()
def publish_before_commit_point() -> Iterator[None]:
    """The first table's entry is created before HEAD says so."""
    original = decide.decide

    def decided(txn: Any, sealed: Any) -> Program[Any]:
        location = txn.work.done[0].table
        tail = txn.context.tails[location]
        yield from store_files(txn)
        change = compose([done.change for done in txn.work.done if done.table == location])
        info = by_log_entry._info(txn, location)
        if tail.tip >= 0:
            ready = yield from txn.context.formats.of(tail.snapshot).prepare(
                tail.snapshot, change, info, txn.context.now_ms()
            )
            yield from put(ready.key, ready.body, ready.condition)
        return (yield from original(txn, sealed))

    with instead(original, decided):
        yield


@planted(for_histories=False)
def no_probe_before_validation() -> Iterator[None]:
    """Foreign commits during the upload are not searched for."""

    def look_above(context: Any, location: str, *, again: bool = False) -> Program[bool]:
        yield from ()
        return False

    with attribute(upload, "look_above", look_above):
        yield


@planted()
def not_validated() -> Iterator[None]:
    """A client replaces HEAD without a check of the commits since its transaction began."""

    def examine(txn: Any, head: Any, **_: Any) -> Program[Any]:
        yield from ()
        return rebase.Examination()

    with attribute(join, "examine", examine):
        yield


@planted(for_histories=False)
def far_states_look_equal() -> Iterator[None]:
    """Where lists of files are compared, their difference is left out."""
    original = row_changes.change_of_lists

    def change_of_lists(old: Any, new: Any, tail: Any) -> Program[Any]:
        net = yield from original(old, new, tail)
        return net if net is None else replace(net, adds={}, removes={})

    with attribute(validate, "change_of_lists", change_of_lists):
        yield


@planted(first_seed=3, kinds=("lists", "skew"))
def all_cleared_by_summaries() -> Iterator[None]:
    """Commits with a summary count as commits that touch nothing."""

    def may_touch(*_: Any) -> Program[bool]:
        yield from ()
        return False

    with attribute(overlap, "_may_touch", may_touch):
        yield


@planted(clients=2, threads=4)
def group_not_validated_within() -> Iterator[None]:
    """Commits in one replacement of HEAD are validated against the HEAD before all of them."""
    joining, examine = join.add_candidates, validate.examine
    base: list[Any] = []

    def joined(context: Any, held: Any, candidates: Any) -> Program[Any]:
        base[:] = [held.head]
        return (yield from joining(context, held, candidates))

    def examined(txn: Any, head: Any, **options: Any) -> Program[Any]:
        return (yield from examine(txn, base[0], **options))

    with attribute(behind, "add_candidates", joined), attribute(join, "examine", examined):
        yield


@planted(38, clients=2, threads=4)
def answered_for_all() -> Iterator[None]:
    """A commit that was lost with its leader's attempt is reported as committed with it."""
    original = replacing._lost

    def lost(context: Any, group: Any, attempt: Any, newer: Any, **options: Any) -> Program[None]:
        yield from original(context, group, attempt, newer, **options)
        _, *others = attempt.candidates.items()
        won = {one: candidate.Settled(newer, mine) for one, mine in others if one.answer is None}
        group.answer(won)

    with attribute(replacing, "_lost", lost):
        yield


@planted(for_histories=False)
def only_owners_publish() -> Iterator[None]:
    """Pending commits before one's own are left to their owners, which may have died."""
    with attribute(turn, "LOOKS", 10**9), attribute(turn, "_EXPECTED_MS", 10**12):
        yield


@planted(kinds=("lists", "skew"))
def reads_not_validated() -> Iterator[None]:
    """Only writes are validated: a serializable transaction gets snapshot isolation."""
    with attribute(validate, "_reads", nothing):
        yield


@planted(first_seed=1, kinds=("lists",), levels=(Level("snapshot"),))
def redone_past_the_reads() -> Iterator[None]:
    """Under snapshot isolation, a transaction writes on a later state than the one that it has
    read.
    """

    def nothing_reads(*_: Any) -> Program[bool]:
        yield from ()
        return False

    with attribute(validate, "_reads_others", nothing_reads):
        yield


@planted(first_seed=23, kinds=("lists", "snapshot"))
def extended_without_a_look() -> Iterator[None]:
    """A transaction moves to a newer HEAD although data that it has read has changed there."""

    def extend(txn: Any) -> Program[bool]:
        if not txn.through_head:
            return False
        held = yield from txn.context.head()
        if held is None:
            return False
        found = yield from validate.examine(txn, held.head, exact=True)
        found.conflict, found.redo_from = None, None
        yield from rebase.rebase(txn, held, found)
        return True

    with instead(validate.extend, extend):
        yield


@planted(first_seed=7, kinds=("lists", "snapshot"), transactions=6)
def bound_to_what_was_seen_last() -> Iterator[None]:
    """A transaction begins with the HEAD and the logs that its process knows, however old.

    A transaction that writes is refused by the validation; one that only reads sees a past that is
    long over.
    """
    binding, asking = bind.bind_to_head, Context.head
    at_it: set[int] = set()

    def bind_to_head(self: Any, *given: Any, **named: Any) -> Program[None]:
        if not self.bound.is_bound and self.context.held is not None:
            at_it.add(id(self.context))
        try:
            yield from binding(self, *given, **named)
        finally:
            at_it.discard(id(self.context))

    def head(self: Any) -> Program[Any]:
        return _this(self.held) if id(self) in at_it else asking(self)

    with (
        instead(binding, bind_to_head),
        attribute(Context, "head", head),
        attribute(bind, "probe", _old_tail),
    ):
        yield


@planted(68, kinds=("lists", "transfer"), intensity=2.0)
def id_not_looked_for() -> Iterator[None]:
    """A client takes a lost answer for a lost race, and the transaction commits once more."""
    with instead(candidate.commit_after, nothing):
        yield


@planted(63, kinds=("shared",), transactions=6, intensity=0.5)
def saved_and_not_looked_for() -> Iterator[None]:
    """Owner and resumer of one transaction both commit."""
    original = candidate.commit_after

    def commit_after(txn: Any, head: Any, sequence: int) -> Program[Any]:
        found = yield from original(txn, head, sequence)
        return found if found is not None and found.hash in txn.ending.digests else None

    with instead(original, commit_after):
        yield


@planted(738, kinds=("shared", "lists"), transactions=5)
def saved_files_deleted() -> Iterator[None]:
    """An owner that has lost its transaction to a resumer deletes the files that it needs."""
    original = saving.save

    def save(txn: Any) -> Program[None]:
        yield from original(txn)
        txn.ending.shared = False

    with instead(original, save):
        yield


@planted(17, kinds=("lists", "add", "shared"), collects=True, transactions=5)
def fence_not_looked_at() -> Iterator[None]:
    """``floor`` and ``aborted`` are not checked for a client that commits."""
    with (
        attribute(TransactionState, "check_not_fenced", lambda self, head: None),
        attribute(join, "is_fenced", lambda head, txn_id: False),
    ):
        yield


@planted(kinds=("transfer", "merge"))
def redo_keeps_stale_files() -> Iterator[None]:
    """An operation in conflict is not redone."""
    with attribute(rebase, "redo", nothing):
        yield


@planted(first_seed=10, kinds=("take", "add"), transactions=5)
def counts_not_observed() -> Iterator[None]:
    """A redo may change a count on which the caller has acted."""
    original = replay.redo

    def redo(txn: Any, done: Any, name: Any) -> Program[None]:
        done.observed = False
        yield from original(txn, done, name)

    with attribute(rebase, "redo", redo):
        yield


@planted(kinds=("keyed",), transactions=5)
def key_bound_blindly() -> Iterator[None]:
    """A key is bound over another client's binding made meanwhile."""

    def bind_key(txn: Any, use: Any) -> Program[None]:
        record = new_record(
            txn.context.ids.nonce(),
            use.key,
            txn.id,
            txn.bound.held.head.sequence,
            None,
            None,
        )
        key = key_object(use.key, use.version)
        yield from put(key, bound(record), ANY)

    with instead(idempotency.bind_key, bind_key):
        yield


@planted(for_histories=False)
def checkpoints_not_compared() -> Iterator[None]:
    """A batch with the number of the last one counts as done, whatever its checkpoint is."""

    def refuse_other(txn: Any, use: Any, batch: int) -> None:
        return None

    with instead(idempotency._refuse_other_checkpoint, refuse_other):
        yield


@planted(for_histories=False)
def plans_not_compared() -> Iterator[None]:
    """A batch with the last one's number and checkpoint counts as done, whatever its rows are."""

    def refuse_plan(txn: Any, use: Any, last: Any) -> None:
        return None

    with instead(idempotency._refuse_other_plan, refuse_plan):
        yield


@planted(for_histories=False)
def gaps_not_seen() -> Iterator[None]:
    """A batch commits though acknowledged batches before it are not in the lake."""

    def refuse_gap(txn: Any, use: Any, last: Any) -> None:
        return None

    with instead(idempotency._refuse_gap, refuse_gap):
        yield


@planted(for_histories=False)
def empty_batches_not_noted() -> Iterator[None]:
    """A batch that writes nothing leaves no note, and the next batch counts as one after a gap."""
    with instead(idempotency.note_over, nothing):
        yield


# ---------------------------------------------------------- views and logs


@planted(first_seed=1, kinds=("lists", "snapshot"))
def pending_not_laid_over() -> Iterator[None]:
    """Readers read the table's log itself, and half of a commit that is being published."""
    original = view.place

    def place(*given: Any, **named: Any) -> Program[Placement]:
        placement = yield from original(*given, **named)
        return replace(placement, overlay=())

    with attribute(view, "place", place):
        yield


@planted(26, features=(Feature.R,), kinds=("lists",))
def hidden_versions_ignored() -> Iterator[None]:
    """The first read of a table trusts the cached part of its log."""
    with attribute(bind, "probe", _old_tail):
        yield


@planted(
    foreign=("touch", "rewrite", "append"),
    kinds=("lists", "take", "merge"),
    features=(Feature.R | Feature.I, Feature.R),
)
def absorbed_without_validation() -> Iterator[None]:
    """Hidden versions get their place in HEAD without a check for conflicts."""
    original = validate.examine

    def examine(txn: Any, head: Any, *, exact: bool = False) -> Program[Any]:
        yield from repo.load_tables(head, txn.work.tables)
        tables = txn.work.tables
        txn.work.tables = {
            location: working
            for location, working in tables.items()
            if head is None or head.tables.get(location) != working.view.state
        }
        try:
            return (yield from original(txn, head, exact=exact))
        finally:
            txn.work.tables = tables

    with attribute(join, "examine", examine):
        yield


@planted(for_histories=False)
def seen_and_not_taken_in() -> Iterator[None]:
    """A writer absorbs foreign entries of the logs that it writes, and not of those it has read."""
    original = join._entries

    def entries(head: Any, found: Any, candidate: Any) -> Program[Any]:
        written = {done.table for done in candidate.txn.work.done}
        tails = {
            location: tail
            for location, tail in found.tails.items()
            if location in written or head.tables.get(location) is None
        }
        return (yield from original(head, replace(found, tails=tails), candidate))

    with attribute(join, "_entries", entries):
        yield


@planted(
    56,
    features=_LOG,
    kinds=("add", "lists"),
    foreign=("append", "clean"),
    long=True,
    transactions=5,
)
def clock_stops_in_suspend() -> Iterator[None]:
    """A tip that was read hours ago counts as fresh."""
    with attribute(ClientClock, "elapsed", lambda self: 0.0):
        yield


# ------------------------------------------------------------- publishing


@planted(kinds=("transfer", "lists", "add"))
def own_entry_first() -> Iterator[None]:
    """The newest pending commit is published before the earlier ones."""
    original = applicability.unpublished

    def unpublished(head: Any, location: str, tail: Tail) -> Any:
        return tuple(reversed(original(head, location, tail)))

    with attribute(publish, "unpublished", unpublished):
        yield


@planted(kinds=("lists", "add"), intensity=2.0)
def published_again() -> Iterator[None]:
    """Publishing does not check whether the log holds a commit already."""

    def unpublished(head: Any, location: str, tail: Tail) -> Any:
        state = head.tables.get(location)
        # The last entry shows its own publisher that the commit is published, and no other client.
        return () if state is None or len(tail.entries) == 1 else state.pending

    with attribute(publish, "unpublished", unpublished):
        yield


@planted(first_seed=5, foreign=("rewrite", "property", "touch"), kinds=("transfer", "lists"))
def unfit_is_dropped() -> Iterator[None]:
    """A commit that no longer fits is cancelled instead of replayed."""

    def replay(*given: Any) -> Program[None]:
        yield from ()
        ref, replayed = given[4], given[-1]
        replayed.voided.append((ref.txn, "it does not fit"))

    with attribute(replay_pending, "_replay_commit", replay):
        yield


@planted(foreign=("rewrite",), kinds=("transfer", "lists"))
def unfit_is_published() -> Iterator[None]:
    """Pending commits are published whether they fit the log or not."""

    def first_unfit(*_: Any) -> Program[None]:
        yield from ()

    with attribute(publish, "first_unfit", first_unfit):
        yield


@planted(for_histories=False)
def unfit_by_last_entry() -> Iterator[None]:
    """A file that RESTORE has brought back counts as never removed."""
    original = applicability.first_unfit

    def first_unfit(
        context: Any, head: Any, location: str, tail: Tail, waiting: Any, parts: Any, *rest: Any
    ) -> Program[int | None]:
        found = yield from original(context, head, location, tail, waiting, parts, *rest)
        if found is None or (yield from applicability.is_lost(context, head, location, tail)):
            return found
        missing = yield from tail.snapshot.missing([r.ref for r in parts[found].change.removes])
        return found if missing else None

    with instead(original, first_unfit):
        yield


@planted(
    84,
    foreign=("property",),
    kinds=("merge", "add"),
    short=True,
    clients=6,
    transactions=3,
    intensity=2.0,
)
def fitness_by_cache() -> Iterator[None]:
    """Clients disagree on whether an entry changes the requirements for files, as wrong caches
    would.
    """

    def changes_contract(context: Any, tail: Tail, entry: Any, part: Any) -> Program[bool]:
        yield from ()
        return entry.change.metadata is not None and context.ids.jitter() < 0.5

    with instead(view.changes_contract, changes_contract):
        yield


# ------------------------------------------------------------------ the past


@planted(1, kinds=("lists", "transfer"), foreign=("append", "rewrite"), transactions=4)
def past_holds_what_the_next_brought() -> Iterator[None]:
    """A foreign change is part of a version before the one that absorbed it."""
    with attribute(past, "_logged_before", lambda touch: touch.published):
        yield


@planted(32, kinds=("lists", "transfer"), transactions=4)
def past_without_pending() -> Iterator[None]:
    """A commit is part of the past from its publishing on, not from its decision on."""

    def none(*_: Any) -> Program[list[Any]]:
        yield from ()
        return []

    with attribute(past, "_decided", none):
        yield


@planted(kinds=("lists", "transfer"))
def old_state_alone_without_pending() -> Iterator[None]:
    """A log's state that is read alone is shown also where it lacks commits of its time."""

    def alone(context: Any, past_: Any, location: str, state: Any) -> Program[Any]:
        if location in context.tails or state.published < 0:
            return None
        try:
            return (yield from past._opened_alone(context, location, state))
        except VersionNotFound:
            return None

    with attribute(past, "_alone", alone):
        yield


@planted(kinds=("lists", "transfer"), short=True, whole=True)
def page_told_without_what_followed() -> Iterator[None]:
    """The tables of a page's HEAD are taken for those at the page's last commit."""

    def split_before(*arguments: Any) -> Any:
        return msgspec.structs.replace(split_page(*arguments), later=())

    with attribute(repo, "split_page", split_before):
        yield


@planted(46, kinds=("lists", "transfer"), short=True, whole=True)
def past_without_pending_of_its_head() -> Iterator[None]:
    """What was pending in the HEAD of a page is taken for published."""
    original = past._decided

    def decided(then: Any, *rest: Any) -> Program[Any]:
        found = yield from original(then, *rest)
        return found if then.known.is_now else []

    with attribute(past, "_decided", decided):
        yield


# --------------------------------------------------------------- cleaning up


@planted(kinds=("lists", "transfer"), collects=True, short=True, transactions=5)
def gc_keeps_only_ends_of_blocks() -> Iterator[None]:
    """Pages that only the page at the end of their block names are taken for garbage."""

    def nothing_else(*_: Any) -> Program[tuple[()]]:
        yield from ()
        return ()

    with attribute(listing, "_others_of_block", nothing_else):
        yield


@planted(152, kinds=("lists", "transfer"), collects=True, settings=_BRISK, transactions=5)
def gc_deletes_before_moving_head() -> Iterator[None]:
    """Files are deleted before their transactions are fenced."""

    def unmoved(context: Any, change: Any) -> Program[Any]:
        held = yield from context.head()
        new = yield from change(held.head)
        return held.head if new is None else new

    with attribute(fence, "replace_until_stored", unmoved):
        yield


@planted(323, kinds=("lists", "transfer"), collects=True, settings=_BRISK, transactions=5)
def gc_forgets_pending() -> Iterator[None]:
    """Files that only a decided and unpublished commit names are taken for orphans."""

    def none(*_: Any) -> Program[set[str]]:
        yield from ()
        return set()

    with attribute(garbage, "needed_files", none):
        yield
