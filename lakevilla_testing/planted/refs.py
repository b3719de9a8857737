"""Planted bugs of refs and of clean-ups around them (docs/design/0030-refs.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from lakevilla.branches import change, keep, states
from lakevilla.branches import keep as keep_branch
from lakevilla.branches.branches import find_ref
from lakevilla.global_log import bases
from lakevilla.global_log.inbox import fold
from lakevilla.global_log.refs import RefEntry, new_epoch
from lakevilla.global_log.repo import maps_of
from lakevilla.lake.frozen import frozen, kept
from lakevilla.lake.frozen.states import SeenBase
from lakevilla.lake.table_log import open_tail
from lakevilla.maintenance import vacuum
from lakevilla.maintenance.gc import garbage
from lakevilla.maintenance.gc import garbage as dead_epochs
from lakevilla.maintenance.gc import gc as fence
from lakevilla.maintenance.gc import listing as store_time
from lakevilla.maintenance.gc.listing import Listing
from lakevilla.store.effects import Program
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.validation import checks as direct
from lakevilla_testing.planted.bugs import attribute, instead, nothing, planted

_OVER_HOURS: dict[str, Any] = {
    "keepers": 2,
    "long": True,
    "kinds": ("transfer", "lists", "add", "optimize"),
}


@planted(first_seed=1, **_OVER_HOURS)
def vacuum_knows_no_refs() -> Iterator[None]:
    """A vacuum keeps only the files that the table and its readers need."""

    def kept_of(*_: Any) -> Program[Any]:
        yield from ()
        return kept.KeptByRefs()

    with attribute(vacuum, "kept_of", kept_of):
        yield


@planted(first_seed=1, **_OVER_HOURS, short=True)
def copies_taken_for_all_bases() -> Iterator[None]:
    """A vacuum keeps the files of those refs of whose bases HEAD has copies."""

    def load_bases(head: Any, *_: Any) -> Program[Any]:
        by_ref = yield from bases.load_bases_by_ref(head)
        copies = yield from bases.load_copies(head)
        known = [base for ref, base in by_ref.items() if ref.name in copies]
        return known if copies else list(by_ref.values())

    with attribute(kept, "load_bases", load_bases):
        yield


@planted(**_OVER_HOURS, foreign=("rewrite",), collects=True, neglected="ours")
def gc_knows_no_refs() -> Iterator[None]:
    """Gc deletes bases that refs name."""
    original = garbage._old_bases

    def old_bases(head: Any, named: Any, listed: Any) -> Any:
        return list(listed)

    with instead(original, old_bases):
        yield


@planted(first_seed=9, **_OVER_HOURS)
def nofloor() -> Iterator[None]:
    """A user of an old version does not check whether a vacuum may be deleting its files."""
    with instead(states._refuse_vacuumed, nothing):
        yield


@planted(for_histories=False)
def nocas() -> Iterator[None]:
    """A vacuum deletes files that no ref kept when it checked, and records nothing."""
    with instead(vacuum._tell, nothing):
        yield


@planted(for_histories=False)
def noentries() -> Iterator[None]:
    """A vacuum keeps the files of the newest log entry, and not those of the entries before it."""

    def named_since(*_: Any) -> Program[set[str]]:
        yield from ()
        return set()

    with instead(vacuum._named_since, named_since):
        yield


@planted(for_histories=False)
def samename() -> Iterator[None]:
    """A base gets the name of the attempt before, which gc may have listed."""
    original = bases.seal_base

    def seal_base(base: Any, _: int) -> Any:
        return original(base, 0)

    with instead(original, seal_base):
        yield


@planted(first_seed=1, **_OVER_HOURS, collects=True, short=True)
def leaves_of_bases_forgotten() -> Iterator[None]:
    """Gc knows the leaves of HEAD, and not those that bases share with older ones."""

    def named_leaves(head: Any, _: Any) -> set[str]:
        return {ref.key for found in maps_of(head) for ref in found.refs}

    with instead(bases.named_leaves, named_leaves):
        yield


@planted(for_histories=False)
def nobasecommits() -> Iterator[None]:
    """Gc deletes the objects of commits that were pending when a ref was made."""
    original = garbage._old_commits

    def old_commits(head: Any, _: Any, kept_commits: Any, listed: Any) -> Program[list[str]]:
        return (yield from original(head, [], kept_commits, listed))

    with instead(original, old_commits):
        yield


@planted(first_seed=1, **_OVER_HOURS)
def log_followed_too_far() -> Iterator[None]:
    """A ref shows what was committed to the log after it was made."""
    original = frozen._view

    def view(context: Any, location: str, state: Any, sequence: int) -> Program[Any]:
        tail = yield from open_tail(context, location, missing_ok=True)
        later = msgspec.structs.replace(state, published=max(tail.tip, state.published), pending=())
        return (yield from original(context, location, later, sequence))

    with instead(original, view):
        yield


@dataclass
class Whichever:
    """The identity of the ref that a change concerns, as the client knows it."""

    id: str
    epoch: str


class EqualToAll(str):
    """A text that equals every text."""

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False

    __hash__ = str.__hash__


@planted(for_histories=False)
def nameagain() -> Iterator[None]:
    """Clients identify a ref by its name alone."""
    change_it, remove = change._change, change._removed

    def whichever(entry: Any) -> Any:
        return Whichever(EqualToAll(entry.id), EqualToAll(entry.epoch))

    def changed(context: Any, name: str, first: Any, made: Any) -> Program[Any]:
        return (yield from change_it(context, name, whichever(first), made))

    def removed(context: Any, name: str, known: Any, held: Any) -> Program[Any]:
        return (yield from remove(context, name, whichever(known), held))

    with instead(change_it, changed), instead(remove, removed):
        yield


@planted(for_histories=False)
def protected_by_its_verbs_alone() -> Iterator[None]:
    """A transaction that is open when main becomes protected still commits."""
    with instead(direct.direct_write, lambda *_: None):
        yield


@planted(for_histories=False)
def protection_unknown_to_who_takes_along() -> Iterator[None]:
    """A client that includes foreign commits does not check whether the lake accepts them."""
    with attribute(fold, "is_direct", lambda _: False):
        yield


@planted(for_histories=False)
def copies_before_a_life() -> Iterator[None]:
    """Copies are stored before HEAD names their owner, which it does only at the end, with the
    base.
    """

    def with_epoch(context: Any, name: str, first: RefEntry) -> Program[RefEntry]:
        head, entry = yield from find_ref(context, name)
        epoch = new_epoch(head.replacement, context.ids.nonce())
        return entry if entry.epochs else msgspec.structs.replace(entry, epochs=(epoch,))

    with instead(keep._with_epoch, with_epoch):
        yield


@planted(for_histories=False)
def kept_goes_with_its_life() -> Iterator[None]:
    """Gc deletes kept states with their epoch, though another tag has them."""

    def none(_: Any) -> set[str]:
        return set()

    with instead(dead_epochs._kept_by_bases, none):
        yield


@planted(for_histories=False)
def blindkeep() -> Iterator[None]:
    """A client puts the base into whatever ref has the name by now."""

    def the_same(name: str, first: RefEntry, held: Any, entry: Any) -> Program[Any]:
        yield from ()
        return held, entry and msgspec.structs.replace(entry, base=first.base)

    with instead(keep._the_same, the_same):
        yield


@planted(for_histories=False)
def pending_again() -> Iterator[None]:
    """A kept branch applies its base's pending commits to a state that has them already."""
    original = states.parted

    def parted(base: Any) -> Program[Any]:
        new = yield from original(base)
        return msgspec.structs.replace(new, tables=base.tables)

    with instead(original, parted):
        yield


@planted(for_histories=False)
def old_files_named() -> Iterator[None]:
    """A kept branch continues with commits that name the files from before the copies."""

    def view(self: Any, context: Any, location: str) -> Program[Any]:
        return (yield from SeenBase._view(self, context, location))

    with attribute(keep_branch._Copied, "_view", view):
        yield


# -------------------------------------------------------- clocks of clients


@planted(
    48, features=(Feature.R,), kinds=("add", "lists"), keepers=2, collects=True, transactions=6
)
def cleaners_believe_their_clock() -> Iterator[None]:
    """Vacuum and gc decide by their own client's clock what is old."""

    def believed(asked: Any, listed: Any) -> Program[float]:
        yield from ()
        return float(asked.own_seconds)

    with instead(store_time.shown_time, believed):
        yield


@planted(for_histories=False)
def history_by_the_writers_clock() -> Iterator[None]:
    """A commit's age goes by its writer's clock, and not by the time when the store got
    its object.
    """
    original = fence._kept_history

    def kept(context: Any, head: Any, listed: Listing) -> Program[Any]:
        listed.written.clear()
        return original(context, head, listed)

    with attribute(fence, "_kept_history", kept):
        yield
