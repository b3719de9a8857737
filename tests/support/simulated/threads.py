"""Threads of one simulated process, and what may strike them."""

from lakevilla.global_log.head import HEAD_KEY
from lakevilla.lake.publishing.outcome import outcome
from lakevilla.maintenance import recovery
from lakevilla.store.effects import Put, parallel
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.world.faults import NoFaults, Strike


def process(*threads):
    """Run one process, whose threads share one context."""

    def program(client):
        context = context_of(client)
        return (yield from parallel([thread(context, client) for thread in threads]))

    return program


def recover(client):
    return recovery.recover(context_of(client))


def asking(txn_id):
    return lambda client: outcome(context_of(client), txn_id)


class AtHead(NoFaults):
    """Fault the first replacements of HEAD that a client sends."""

    def __init__(self, fault, times):
        self.fault = fault
        self.left = times

    def strike(self, client, number, attempt):
        if client != "threads" or not isinstance(attempt, Put) or attempt.key != HEAD_KEY:
            return None
        if self.left == 0:
            return None
        self.left -= 1
        return Strike(self.fault)
