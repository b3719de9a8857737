"""Publishing for all transactions of a process at once: one of them publishes a table.

Each alone would try to create the same entry, and all but one would have to read
what came instead. So one publishes all that is pending on a table, and the others
wait for it; whoever is decided meanwhile goes in the next round, with one entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head
from lakevilla.lake.context import Context
from lakevilla.lake.lanes import Lane, Member, pass_through
from lakevilla.lake.publishing.publish import Published, publish_table
from lakevilla.lake.publishing.turn import Turn
from lakevilla.store.effects import Program


@dataclass(slots=True, eq=False)
class Wish(Member[Published | LakeVillaError]):
    """That all which ``head`` shows as pending on a table is published.

    ``ours`` are the transactions whose commits are the wisher's own to publish; others' owners may
    go first. With none of them nobody is waited for.
    """

    head: Head
    ours: frozenset[str]


def publish_once(
    context: Context, head: Head, location: str, ours: frozenset[str] = frozenset()
) -> Program[Published | LakeVillaError]:
    """Publish what ``head`` shows as pending on a table, or wait for whoever does.

    What has failed is returned, not raised: it befalls all who wait for it.
    """
    wish = Wish(head, ours)
    lane = _lane(context, location)
    yield from pass_through(lane, wish, partial(_publish, context, lane, location))
    assert wish.answer is not None
    return wish.answer


def _lane(context: Context, location: str) -> Lane[Wish]:
    return context.lanes.named(f"publishing {location}")


def _publish(context: Context, lane: Lane[Wish], location: str) -> Program[None]:
    wishes = lane.present()  # any number of them is granted by one walk of the log
    newest = max((wish.head for wish in wishes), key=lambda head: head.replacement)
    known = context.held
    if (
        known is not None
        and known.head.lake_id == newest.lake_id
        and known.head.replacement > newest.replacement
    ):
        # Decided since: those it has decided are about to ask for the same.
        newest = known.head

    # A newer HEAD has pending what an older one has, unless its log has it by now,
    # or a reconcile commit stands in its place: so all the wishes are granted.
    def is_ours(txn: str) -> bool:
        return any(not wish.ours or txn in wish.ours for wish in lane.present())

    answer: Published | LakeVillaError
    try:
        answer = yield from publish_table(context, newest, location, Turn(is_ours))
    except LakeVillaError as error:
        answer = error
    lane.answer(dict.fromkeys(wishes, answer))
