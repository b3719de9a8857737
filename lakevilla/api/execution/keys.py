"""Idempotency keys of transactions on a branch, held against what the branch was made of.

That is asked of the lake itself, where a branch's own programs do not look.
"""

from __future__ import annotations

from lakevilla.api.client.client import LakeClient
from lakevilla.errors import AlreadyCommitted
from lakevilla.results import Outcome
from lakevilla.transaction.verbs.branch_keys import committed_in_base


def outcome_in_base(client: LakeClient, key: str) -> Outcome:
    """How a key ended in what a branch was made of; expired, also on the lake itself."""
    held, lake = client.context.held, client.lake
    if held is None or lake is None or held.head.life is None:
        return Outcome("expired")
    result = lake.run(committed_in_base(lake.context, held.head, key))
    if result is None:
        return Outcome("expired")
    return Outcome("committed", client.named(result))


def refuse_in_base(client: LakeClient, key: str) -> None:
    """Refuse a key that was committed there. Raises ``AlreadyCommitted``."""
    result = outcome_in_base(client, key).result
    if result is not None:
        raise AlreadyCommitted(
            f"idempotency key {key!r} was committed by transaction {result.id} before branch "
            f"{client.branch!r} was made: nothing is left to do",
            result=result,
            txn_id=result.id,
        )
