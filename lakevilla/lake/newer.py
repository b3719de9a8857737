"""Signs of a newer HEAD: objects in the store that the known HEAD can't explain.

HEAD is one object, and a restored backup, or a failed copy, may replace it by an older HEAD, which
is valid by itself. A client that deletes by such a HEAD would take all later objects for garbage:
branches and the files that only they have, bases of tags, commits that are not published yet. So
before a client deletes, it checks for signs of a newer HEAD (docs/design/0053-gone-back.md), and if
it finds one, it deletes nothing.

There are three kinds of signs. An object may have in its name the number of the HEAD for which it
was stored: the client that stored it has read the HEAD before. A commit object names the newest
commit that its client had read. A table's log has a ``txn`` action, which names the newest of the
lake's commits in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakevilla.errors import (
    ConflictError,
    CorruptObject,
    LakeVillaError,
    StoreError,
    UnsupportedFormat,
    VersionNotFound,
)
from lakevilla.global_log.commits import COMMITS_PREFIX, CommitObject, read_commit
from lakevilla.global_log.head import HEAD_KEY, PAGE_LENGTH, Head, application_id
from lakevilla.global_log.head_log import HEADS_PREFIX, RECENT_PREFIX
from lakevilla.global_log.history import went_back
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX
from lakevilla.global_log.leaves import LEAVES_PREFIX, is_mark
from lakevilla.global_log.numbered_log import entry_key
from lakevilla.global_log.refs import BASES_PREFIX
from lakevilla.global_log.repo import load_head, load_pages
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.results import Finding
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, list_objects, parallel, sleep
from lakevilla.store.location import HOMES_PREFIX, at_home

#: The number of objects that are requested in one round.
_AT_ONCE = 64
#: The time for which a client waits for the next HEAD if an object was already stored for it.
_PATIENCE_SECONDS = 2.0
_LOOKS = 4
_DIGITS = 20


@dataclass(slots=True)
class Signs:
    """The signs that were found, each with the oldest HEAD that can explain it.

    ``numbers`` and ``sequences`` have the keys of objects which prove that a HEAD with that number,
    or with that commit, existed. ``next_number`` has objects that were stored for the HEAD with
    that number; their clients may have died before they replaced HEAD. ``in_doubt`` are commit
    objects that were never committed, unless HEAD was set back by one commit.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    next_number: dict[str, int] = field(default_factory=dict)
    in_doubt: list[str] = field(default_factory=list)

    def against(self, head: Head) -> str | None:
        """Return an object that proves a newer HEAD than this one; None if there is none."""
        for key, number in self.numbers.items():
            if number > head.replacement:
                return key
        for key, number in self.next_number.items():
            if number > head.replacement + 1:
                return key
        return next((key for key, n in self.sequences.items() if n > head.sequence), None)

    def forget_settled(self, head: Head) -> None:
        """Drop from ``in_doubt`` aborted commits, and those older than HEAD's newest commit."""
        self.in_doubt = [
            key
            for key in self.in_doubt
            if self.sequences[key] >= _own_sequence(head) and _txn_of(key) not in head.aborted
        ]

    def doubtful(self) -> set[str]:
        """Return the transactions whose commit objects are in doubt."""
        return {_txn_of(key) for key in self.in_doubt}

    def to_come(self, head: Head) -> str | None:
        """Return an object that was stored for the HEAD after this one; None if there is none."""
        following = head.replacement + 1
        return next((key for key, n in self.next_number.items() if n == following), None)


def refuse_older_head(
    context: Context,
    what: str,
    locations: Iterable[str] = (),
    *,
    waits: bool = True,
) -> Program[Signs]:
    """Refuse to delete, or to raise the floor, if any sign shows that HEAD was set back.

    The check lists all objects that are named by numbers, and reads commit objects that HEAD does
    not know, the logs of the tables at ``locations``, and the logs of the tables of such commits.

    Parameters
    ----------
    what : str
        The verb, for the message.
    waits : bool
        Refuse also if an object was stored for the next HEAD and that HEAD does not exist: the
        client that stored it has died, or HEAD was set back. First wait: that client may still be
        at work.

    Returns
    -------
    Signs
        The signs that were found; none of them proves a newer HEAD.

    Raises
    ------
    CorruptObject
        HEAD was set back.
    ConflictError
        HEAD may have been set back, by one replacement.
    """
    held = yield from context.head()
    if held is None:
        return Signs()
    signs = yield from _of_numbers_and_commits(context, held.head)
    yield from _add_logs(context, locations, held.head, signs)
    patience = context.clock.elapsed() + _PATIENCE_SECONDS
    while True:
        # HEAD is read after the signs were listed: a HEAD that was stored since explains them.
        held = yield from context.head()
        assert held is not None, "a client that has seen a HEAD is informed if it is missing"
        key = signs.against(held.head)
        if key is not None:
            raise older_head(held.head, key, what)
        key = signs.to_come(held.head) if waits else None
        if key is None:
            signs.forget_settled(held.head)
            return signs
        if context.clock.elapsed() >= patience:
            raise _in_doubt(held.head, key, what)
        yield from sleep(_PATIENCE_SECONDS / _LOOKS)


def refuse_in_doubt(context: Context, what: str, signs: Signs) -> Program[None]:
    """Refuse more than ``refuse_older_head``, for a client that acts without a user's request.

    ``signs`` are those that ``refuse_older_head`` has returned to this client. If HEAD was set back
    since, the client notices that by the HEADs that it has read.

    Such a client changes the objects that HEAD names, or commits. So a HEAD is also refused if it
    may have lost the newest commit: a commit object exists that HEAD does not name. If the object's
    transaction, or another transaction, is still at work, HEAD advances soon, and is not refused.

    Raises
    ------
    ConflictError
        HEAD may have been set back, by one commit.
    """
    held = context.held
    if held is None:
        return
    signs.forget_settled(held.head)
    if not signs.in_doubt:
        return
    patience = context.clock.elapsed() + _PATIENCE_SECONDS
    while (yield from _is_unchanged(context, held.head)):
        if context.clock.elapsed() >= patience:
            raise ConflictError(
                f"{what}: {signs.in_doubt[0]} was never committed: its transaction has died, or "
                f"{HEAD_KEY} was set back by that commit; run it again after the lake's next "
                "commit, or, if no commit is missing, confirm HEAD by `lakevilla recover ROOT "
                "--confirm-head`"
            )
        yield from sleep(_PATIENCE_SECONDS / _LOOKS)


def _is_unchanged(context: Context, head: Head) -> Program[bool]:
    held = yield from context.head()
    return held is not None and held.head.sequence == head.sequence


def refuse_older(
    context: Context, what: str, tails: Iterable[Tail] = (), *, once: bool = False
) -> Program[None]:
    """Refuse to begin work if HEAD was set back, as far as a few LISTs and open logs show that.

    The check sends one LIST for each kind of object that is named by numbers, only for numbers
    above HEAD's. ``tails`` are logs that the caller has opened anyway. ``once``: send no LISTs if
    this client has sent them before. The check does not wait for clients that may be at work.

    Raises
    ------
    CorruptObject
        HEAD was set back.
    """
    held = context.held
    if held is None:
        return
    is_known = once and context.asked.is_newest
    signs = Signs() if is_known else (yield from _of_numbers(held.head))
    context.asked.is_newest = True
    signs.sequences.update(_marks(held.head, tails))
    yield from _raise_if_against(context, held.head, signs, what)


def in_doubt(context: Context, head: Head) -> Program[tuple[bool, list[str]]]:
    """Return whether an object was stored for the next HEAD, and the transactions in doubt."""
    signs = yield from _of_numbers_and_commits(context, head)
    return signs.to_come(head) is not None, sorted(signs.doubtful())


def refuse_newer_logs(context: Context, head: Head, tails: Iterable[Tail]) -> Program[None]:
    """Raise ``CorruptObject`` if a log of ``tails`` has a newer commit of the lake than HEAD."""
    yield from _raise_if_against(context, head, Signs(sequences=_marks(head, tails)), "")


def _raise_if_against(context: Context, head: Head, signs: Signs, what: str) -> Program[None]:
    """Raise an error if signs prove a newer HEAD, unless HEAD has advanced since."""
    if signs.against(head) is None:
        return
    held = yield from context.head()
    if held is not None and (key := signs.against(held.head)) is not None:
        raise older_head(held.head, key, what)


def report_newer(context: Context) -> Program[list[Finding]]:
    """Return the error of ``refuse_older_head`` as a finding; the caller checks tables' logs."""
    try:
        yield from refuse_older_head(context, "")
    except CorruptObject as error:
        return [Finding("error", error.kind, error.message, key=error.key)]
    except ConflictError as error:
        return [Finding("warning", "head_in_doubt", error.message, key=HEAD_KEY)]
    return []


def older_head(head: Head, key: str, what: str = "", *, table: str | None = None) -> CorruptObject:
    """Return the error for a ``key`` that only a newer HEAD than this one explains."""
    evidence = f"{key} was stored when there was a newer one"
    nothing = f"{what}: nothing was deleted or changed: " if what else ""
    return went_back(head, evidence, before=nothing, table=table)


# -- numbers ----------------------------------------------------------------------


def _of_numbers(head: Head) -> Program[Signs]:
    """Return the signs of objects with numbers above HEAD's, by one LIST for each kind."""
    number = head.replacement
    above = [
        *[(prefix, f"{prefix}/{number:0{_DIGITS}}-~") for prefix in _STORED_FOR],
        (of_heads := HEADS_PREFIX if head.as_log else RECENT_PREFIX, entry_key(of_heads, number)),
    ]
    listed = yield from parallel([list_objects(prefix, after) for prefix, after in above])
    signs = Signs()
    for (prefix, _), infos in zip(above, listed, strict=True):
        for info in infos:
            _note_number(signs, prefix, info.key)
    yield from _read_epochs(head, signs)
    return signs


#: Prefixes of objects whose names contain the number of a HEAD: that of the HEAD which shall name
#: the object, or, for marks and proposals, that of a HEAD which existed.
_STORED_FOR = (LEAVES_PREFIX, BASES_PREFIX, HOMES_PREFIX, INBOX_PREFIX)


def _note_number(signs: Signs, prefix: str, key: str) -> None:
    digits = key.removeprefix(f"{prefix}/")[:_DIGITS]
    if not (digits.isascii() and digits.isdigit() and len(digits) == _DIGITS):
        return  # not an object of LakeVilla
    number = int(digits)
    if prefix in (INBOX_PREFIX, HEADS_PREFIX, RECENT_PREFIX) or is_mark(key):
        signs.numbers[key] = number
    else:
        signs.next_number[key] = number


def _read_epochs(head: Head, signs: Signs) -> Program[None]:
    """Add epochs with commits: a HEAD of the lake named each epoch before its first commit."""
    following = head.replacement + 1
    epochs = {
        key.removeprefix(f"{HOMES_PREFIX}/").partition("/")[0]: key
        for key, number in signs.next_number.items()
        if number == following and key.startswith(f"{HOMES_PREFIX}/")
    }
    for epoch, key in epochs.items():
        try:
            held = yield from at_home(epoch, load_head())
        except (CorruptObject, UnsupportedFormat):
            continue
        if held is not None and held.head.replacement > 0:
            signs.numbers[key] = following


# -- commit objects ---------------------------------------------------------------


def _of_numbers_and_commits(context: Context, head: Head) -> Program[Signs]:
    """Return the signs of objects with numbers, and of commit objects that HEAD does not know.

    Commit objects with fenced ids are no signs, so they are not read.
    """
    above = f"{COMMITS_PREFIX}/{head.floor}"
    both: list[Program[Any]] = [_of_numbers(head), list_objects(COMMITS_PREFIX, above)]
    signs, listed = yield from parallel(both)
    assert isinstance(signs, Signs)
    unknown = yield from _unknown(head, [info.key for info in listed])
    signs.sequences.update((key, commit.after) for key, commit in unknown.items())
    # If a commit may have been decided by a HEAD that was lost, a log of its tables may have it.
    signs.in_doubt = [key for key, commit in unknown.items() if _may_be_decided(head, commit)]
    wanted = sorted({location for key in signs.in_doubt for location in unknown[key].tables})
    yield from _add_logs(context, wanted, head, signs)
    return signs


def commits_on_branches() -> Program[dict[str, list[str]]]:
    """Return the keys of the commit objects on branches, by epoch: one LIST."""
    found: dict[str, list[str]] = {}
    for info in (yield from list_objects(HOMES_PREFIX)):
        epoch, _, name = info.key.removeprefix(f"{HOMES_PREFIX}/").partition("/")
        if name.startswith("commits/"):
            found.setdefault(epoch, []).append(info.key)
    return found


def signs_on_branch(head: Head, keys: Iterable[str]) -> Program[Signs]:
    """Return the signs of commit objects at ``keys`` that the HEAD of their branch does not
    know.
    """
    unknown = yield from at_home(head.home, _unknown(head, keys))
    return Signs(
        sequences={key: commit.after for key, commit in unknown.items()},
        in_doubt=[key for key, commit in unknown.items() if _may_be_decided(head, commit)],
    )


def _may_be_decided(head: Head, commit: CommitObject) -> bool:
    """Return whether a lost HEAD may have had the commit: no later commit is in this HEAD.

    Most such objects are of transactions that died before their commit. But a HEAD that was set
    back by one commit looks just the same.
    """
    return commit.after >= _own_sequence(head)


def _own_sequence(head: Head) -> int:
    """Return the global version of HEAD's newest commit, foreign commits left out."""
    own = [one.sequence for one in head.commits if one.kind != "foreign"]
    return max(own, default=head.history_start)


def _unknown(head: Head, keys: Iterable[str]) -> Program[dict[str, CommitObject]]:
    """Return the commit objects whose transactions a HEAD has neither committed nor aborted.

    The program must run at the home of HEAD's history. Objects that can't be read are left out.
    """
    states = head.tables.cached().values()
    known = {commit.txn for commit in head.commits}
    known |= {state.refreshed.txn for state in states if state.refreshed is not None}
    known |= {ref.txn for state in states for ref in state.pending}
    known.update(head.aborted)
    wanted = yield from _not_in_pages(head, [key for key in keys if _txn_of(key) not in known])
    found: dict[str, CommitObject] = {}
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        outcomes = yield from parallel([get(key) for key in some])
        for key, outcome in zip(some, outcomes, strict=True):
            try:
                if isinstance(outcome, Found):
                    found[key] = read_commit(key, outcome.body)
            except LakeVillaError:
                continue
    return found


def _not_in_pages(head: Head, keys: list[str]) -> Program[list[str]]:
    """Return the keys of commit objects whose transactions no page of the kept history has.

    The pages are read back only until they have all of them: most objects are of newer commits.
    """
    last = head.commits[0].sequence - 1 if head.commits else head.sequence
    length = PAGE_LENGTH
    while keys and last > head.history_start:
        first = max(last - length, head.history_start) + 1
        try:
            pages = yield from load_pages(head.pages, first, last)
        except (CorruptObject, UnsupportedFormat, VersionNotFound):
            break
        found = {commit.txn for page in pages for commit in page.commits}
        keys = [key for key in keys if _txn_of(key) not in found]
        last, length = first - 1, 4 * length
    return keys


def _txn_of(key: str) -> str:
    return key.rpartition("/")[2].rpartition("-")[0]


# -- logs -------------------------------------------------------------------------


def _marks(head: Head, tails: Iterable[Tail]) -> dict[str, int]:
    """Return the newest commit of this lake that each log holds, by a description of the log."""
    application = application_id(head)
    return {
        f"the log of table {tail.location}": sequence
        for tail in tails
        if tail.tip >= 0
        and (sequence := tail.snapshot.application_version(application)) is not None
    }


def _add_logs(
    context: Context, locations: Iterable[str], head: Head, signs: Signs
) -> Program[None]:
    tails = yield from _logs(context, list(locations))
    signs.sequences.update(_marks(head, tails))


def _logs(context: Context, locations: Sequence[str]) -> Program[list[Tail]]:
    """Return the newest state of the tables' logs, without logs that can't be read."""
    found: list[Tail] = []
    for first in range(0, len(locations), _AT_ONCE):
        some = yield from parallel([_log(context, one) for one in locations[first:][:_AT_ONCE]])
        found += [tail for tail in some if tail is not None]
    return found


def _log(context: Context, location: str) -> Program[Tail | None]:
    try:
        tail = yield from open_tail(context, location, missing_ok=True)
        return (yield from probe(context, tail))
    except StoreError:
        raise
    except LakeVillaError:
        return None


def _in_doubt(head: Head, key: str, what: str) -> ConflictError:
    nothing = f"{what}: nothing was deleted: " if what else ""
    again = "run it again" if what else "gc and vacuum will delete again"
    return ConflictError(
        f"{nothing}{key} was stored for the HEAD after number {head.replacement}, which does not "
        f"exist: its writer is still running or has died, or {HEAD_KEY} was set back by one "
        f"commit; {again} after the lake's next commit, or, if no commit is missing, confirm HEAD "
        "by `lakevilla recover ROOT --confirm-head`"
    )
