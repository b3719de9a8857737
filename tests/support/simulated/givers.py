"""Iceberg clients that ask for commits on a branch, in the simulator."""

from contextlib import suppress
from dataclasses import dataclass

from lakevilla.errors import RefNotFound, StoreError
from lakevilla.transaction.commit.asked import TableRequest
from lakevilla_testing.histories.givers import answer_to, request_for
from lakevilla_testing.tables.bare import UnreadableTable
from tests.support.simulated.branches import on_branch

#: An answer that says that nothing took effect; the client deletes its files.
_REFUSED = frozenset({"conflict", "exists", "busy", "invalid", "unsupported", "missing"})


@dataclass
class Asking:
    """A client that adds a row to table a on a branch, and sends the request twice.

    Its program goes on in the process that replaces a crashed one.
    """

    number: int
    request: TableRequest | None = None
    outcome: str = "none"

    def __call__(self, client):
        with suppress(RefNotFound):  # the gateway says 500: it may have been merged
            yield from on_branch(client, "etl", lambda context: self._ask(client, context))
        return self.outcome

    def _ask(self, client, context):
        if self.request is None:
            shown = yield from answer_to(context, (TableRequest("a"),))
            if shown is None or shown.outcome != "done":
                return
            try:
                made = yield from request_for(client, "a", shown.tables["a"], self.number)
            except (UnreadableTable, StoreError):
                return
            self.request = made
        for _ in range(2):
            answer = yield from answer_to(context, (self.request,))
            if answer is None or answer.outcome == "unknown":
                continue
            told = "done" if answer.outcome == "done" else "refused"
            assert told == "done" or answer.outcome in _REFUSED, answer
            assert self.outcome in ("none", told), (self.outcome, answer)
            self.outcome = told
