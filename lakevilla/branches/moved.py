"""The HEAD of a branch's next life: a state of the lake, and what was done on the branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from lakevilla.global_log.bases import Base
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import BranchLife, Head, first_head
from lakevilla.global_log.refs import BaseRef, RefEntry
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context
from lakevilla.lake.file_names import branch_of
from lakevilla.lake.fitness import paths_of
from lakevilla.lake.frozen.states import AtBase
from lakevilla.store.base import Token
from lakevilla.store.effects import Program
from lakevilla.store.home import at_home
from lakevilla.transaction.commit.commit_object import Sealed, seal_commit
from lakevilla.transaction.commit.together.candidate import Candidate, Declined, Failed
from lakevilla.transaction.commit.together.join import admit
from lakevilla.transaction.commit.upload import upload
from lakevilla.transaction.state.errors import conflict
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.applying.apply import apply_states
from lakevilla.transaction.verbs.applying.asked import Settle
from lakevilla.transaction.verbs.begin import begin

#: Of a HEAD that is not stored yet: nothing is ever replaced by it.
_NONE = Token(None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a rebase: ``keys`` by location, and what counts in a conflict.

    ``verb``: what the history of a table calls it.
    """

    keys: Mapping[str, tuple[str, ...]]
    settle: Settle = field(default_factory=Settle)
    owner: str = ""
    verb: str = "REBASE"


@dataclass(frozen=True, slots=True)
class Moved:
    """A HEAD that is to be stored, and with it what ``uploads`` store.

    ``lives``: those before whose files it names.
    """

    head: Head
    lives: frozenset[str]
    uploads: Sequence[Program[None]]


def moved_to(
    context: Context,
    entry: RefEntry,
    base: Base,
    ref: BaseRef,
    since: AtBase,
    was: AtBase,
    wanted: Wanted,
) -> Program[Moved]:
    """What was done on a branch from ``since`` to ``was``, done to the state that ``base`` has.

    A transaction of the new life does it, on a HEAD that nobody has stored: it is stored with its
    commit, if there is anything to do. Errors as ``apply``.
    """
    assert context.held is not None, "a branch is found by the lake's HEAD"
    life = BranchLife(base.life, base.name, entry.id, ref, apart=bool(base.kept))
    nonce = context.ids.nonce()
    # Its versions go on behind those that were, so that each names one state of the branch.
    first = first_head(
        context.held.head,
        life,
        base.tables,
        base.names,
        nonce,
        sequence=was.version + 1,
        clones=base.clones,
    )
    held = HeldHead(first, _NONE)
    txn = _begun(context.of_branch(held), held, wanted.owner)
    applying = apply_states(
        txn, first, since, was, None, dict(wanted.keys), wanted.settle, wanted.verb
    )
    yield from at_home(base.life, applying)
    if not txn.work.done:
        return Moved(first, frozenset(), ())
    sealed = yield from at_home(base.life, seal_commit(txn))
    txn.context.keep_commit(sealed.digest, sealed.commit)
    following = yield from at_home(base.life, _following(txn, held, sealed))
    head = msgspec.structs.replace(following, replacement=first.replacement)
    return Moved(head, _lives_named(sealed.commit), [at_home(base.life, upload(txn, sealed))])


def _begun(own: Context, held: HeldHead, owner: str) -> TransactionState:
    """A transaction on a life that has no HEAD in the store yet: it is bound without looking."""
    options = Options(Feature.R | Feature.I, owner=owner)
    txn = begin(TransactionState(own, own.ids.txn_id(), options, through_head=True))
    txn.bound.held = held
    txn.bound.sequence = txn.bound.began = held.head.sequence
    txn.bound.started_ms = own.now_ms()
    txn.bound.began_at = own.clock.elapsed()
    txn.bound.is_bound = True
    return txn


def _following(txn: TransactionState, held: HeldHead, sealed: Sealed) -> Program[Head]:
    """The HEAD with the transaction's commit, as a commit on a branch makes it."""
    candidate = Candidate(txn, sealed.commit, sealed.digest, held, body=sealed.body)
    found = yield from admit(held, held.head, candidate)
    if isinstance(found, Head):
        return found
    if isinstance(found, Failed):
        raise found.error
    assert isinstance(found, Declined), found
    if found.found is not None and found.found.conflict is not None:
        raise found.found.conflict
    raise conflict(txn, "", "its state changed while it was rebased")


def _lives_named(commit: CommitObject) -> frozenset[str]:
    """The lives in whose directories files lie that a commit adds."""
    found = {
        branch_of(path)
        for location, part in commit.tables.items()
        for file in part.change.adds
        for path in paths_of(location, file)
    }
    return frozenset(life for life in found if life is not None)
