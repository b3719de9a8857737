"""Planted bugs of given commits (note 73): a rule is left out, and histories or a test show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from lakevilla.errors import CommitOutcomeUnknown, ConflictError
from lakevilla.formats.iceberg import commit as committing
from lakevilla.formats.iceberg import given as versions
from lakevilla.formats.iceberg import table_format
from lakevilla.global_log.inbox import fold
from lakevilla.lake import applicability
from lakevilla.maintenance import vacuum
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant
from lakevilla.transaction.commit import given, given_on_branch, making, upload
from lakevilla.transaction.commit.asked import Answer
from lakevilla.transaction.commit.together import replacing
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.validation import checks, validate
from lakevilla.transaction.verbs import read_write
from lakevilla_testing.planted.bugs import attribute, instead, planted

_GIVEN: dict[str, Any] = {
    "formats": "iceberg",
    "givers": 3,
    "clients": 2,
    "features": (Feature.R | Feature.I,),
    "kinds": ("add", "transfer"),
}


@planted(for_histories=False)
def decided_on_another_version() -> Iterator[None]:
    """A given commit is decided although others have committed since its version (G5)."""
    with attribute(validate, "_not_its_version", lambda *_: None):
        yield


@planted(first_seed=7, **_GIVEN)
def not_looked_for() -> Iterator[None]:
    """A request that is sent again is compared, though its snapshots are there (G2)."""
    with attribute(given, "_there", lambda *_: None):
        yield


@planted(**{**_GIVEN, "made": True})
def made_and_not_looked_for() -> Iterator[None]:
    """A request that makes a table is compared again, though its table is there (G10)."""

    def not_made(txn: Any, requests: Any) -> Program[set[str]]:
        yield from original(txn, requests)
        return {one.location for one in requests if one.makes is not None}

    original = making.not_made
    with attribute(given, "not_made", not_made):
        yield


@planted(for_histories=False)
def refused_by_another_at_its_place() -> Iterator[None]:
    """A request is refused if another table is where it makes its own, though it is half done
    (G10).
    """

    def not_made(txn: Any, requests: Any) -> Program[set[str]]:
        try:
            return (yield from original(txn, requests))
        except CommitOutcomeUnknown as error:
            raise ConflictError(error.message) from error

    def give(*arguments: Any) -> Program[Any]:
        answer = yield from beginning(*arguments)
        return replace(answer, outcome="exists") if answer.outcome == "busy" else answer

    original, beginning = making.not_made, given.give
    with attribute(given, "not_made", not_made), instead(beginning, give):
        yield


@planted(for_histories=False)
def refused_and_not_bound() -> Iterator[None]:
    """The key of a request that is refused for good is left free (G9)."""

    def bound(txn: Any, answer: Answer) -> Program[Answer]:
        yield from ()
        return answer

    with attribute(given, "_bound_to_key", bound):
        yield


@planted(for_histories=False)
def half_refused() -> Iterator[None]:
    """A request that is void on one of its tables is refused (G8)."""

    def void(held: Any, result: Any, written: set[str]) -> Program[Any]:
        found = yield from original(held, result, written)
        return written if found else found

    original = given._void
    with attribute(given, "_void", void):
        yield


@planted(for_histories=False)
def refused_in_doubt() -> Iterator[None]:
    """A request whose replacement of HEAD has no answer is refused (G8)."""

    def decided(*arguments: Any) -> Program[Any]:
        answer = yield from original(*arguments)
        if answer is not None and answer.outcome == "unknown":
            return replace(answer, outcome="conflict")
        return answer

    original = given._decided
    with attribute(given, "_decided", decided):
        yield


@planted(for_histories=False)
def refused_while_it_may_land() -> Iterator[None]:
    """A request is refused by a version that HEAD does not know, and HEAD is left (G3)."""

    def refused(txn: Any, views: Any, error: Any, *, makes: bool) -> Program[Any]:
        yield from ()
        return Answer("conflict", error.message)

    with attribute(given, "_refused_for_good", refused):
        yield


@planted(for_histories=False)
def relied_on_and_not_compared() -> Iterator[None]:
    """A table on which a client only relies is not compared when HEAD is replaced (G5)."""

    def execute(txn: Any, operation: Any, verb: str) -> Program[Any]:
        if operation.given.updates:
            return (yield from original(txn, operation, verb))
        return None

    original = read_write.execute
    with attribute(given, "execute", execute):
        yield


@planted(for_histories=False)
def relied_on_and_not_looked_at() -> Iterator[None]:
    """A request that fits what the process knows is decided without a look at the logs (G5)."""

    def look(*_: Any, **options: Any) -> Program[bool]:
        yield from ()
        return False

    with attribute(upload, "look_above", look):
        yield


@planted(for_histories=False)
def another_snapshot_id() -> Iterator[None]:
    """On a foreign version the client's snapshot gets another id (G7)."""

    def prepare(snapshot: Any, change: Any, info: Any, timestamp_ms: int) -> Program[Any]:
        info = msgspec.structs.replace(info, given=None)
        return (yield from original(snapshot, change, info, timestamp_ms))

    original = committing.prepare
    with attribute(table_format, "prepare", prepare):
        yield


@planted(for_histories=False)
def updates_of_another_version() -> Iterator[None]:
    """A commit that fits its version alone is published on a foreign one, as its files (G7)."""

    def moves(*_: Any) -> Program[bool]:
        yield from ()
        return True

    with attribute(versions, "_moves", moves):
        yield


@planted(for_histories=False)
def removed_files_taken() -> Iterator[None]:
    """A client's snapshot may name files that were removed."""

    def refused(*_: Any) -> Program[None]:
        yield from ()

    with attribute(versions, "_refuse_removed", refused):
        yield


@planted(for_histories=False)
def given_in_the_inbox() -> Iterator[None]:
    """Any process may include a given commit in its replacement of HEAD (G5)."""
    with attribute(fold, "Given", Transplant), attribute(replacing, "Given", Transplant):
        yield


@planted(for_histories=False)
def snapshot_of_a_ref_removed() -> Iterator[None]:
    """A client removes a snapshot that a ref keeps in the HEAD that is replaced."""
    with attribute(checks, "snapshots_removed", lambda _: set()):
        yield


@planted(for_histories=False)
def vacuum_knows_no_given() -> Iterator[None]:
    """Vacuum deletes statistics that a decided and unpublished given commit names."""

    def needed(context: Any, location: str, refs: Any) -> Program[Any]:
        found = yield from original(context, location, refs)
        return {path for path in found if not path.endswith(".puffin")}

    original = applicability.needed_files
    with attribute(vacuum, "needed_files", needed):
        yield


@planted(for_histories=False)
def branch_base_not_compared() -> Iterator[None]:
    """On a branch a given commit is decided though others have committed since its state (B2)."""

    def conflict(txn: Any, new: Any) -> Any:
        return None if txn.context.epoch else original(txn, new)

    original = validate._not_its_version
    with attribute(validate, "_not_its_version", conflict):
        yield


@planted(for_histories=False)
def deletes_taken_as_they_are() -> Iterator[None]:
    """On a branch a client's delete files are part of a commit, though no merge has them (B5)."""

    def as_they_are(txn: Any, view: Any, change: Any) -> Program[Any]:
        yield from ()
        return change

    with attribute(given_on_branch, "_with_own_marks", as_they_are):
        yield


@planted(for_histories=False)
def not_looked_for_on_its_branch() -> Iterator[None]:
    """On a branch a request that is sent again is compared, though HEAD has it (B3)."""

    def is_there(*_: Any) -> Program[bool]:
        yield from ()
        return False

    with attribute(given_on_branch, "_is_there", is_there):
        yield


@planted(for_histories=False)
def refused_by_hope_on_its_branch() -> Iterator[None]:
    """On a branch a request is refused, though commits that are not known may have it (B3)."""

    def never(*_: Any) -> Program[bool]:
        yield from ()
        return True

    with attribute(given_on_branch, "_never_took_effect", never):
        yield
