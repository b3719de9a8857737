"""Tables, transactions and processes for the exhaustive tests and the scenarios."""

from lakevilla.errors import AlreadyCommitted, ConflictError, LakeVillaError, TransactionAborted
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.base import Unknown
from lakevilla.store.effects import Await, List, Parallel, Put, Sleep, sleep
from lakevilla.sublogs.operations import Update
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs import abort as rerun
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.begin import begin as _begin
from lakevilla.transaction.verbs.read_write import execute, scan
from lakevilla.transaction.verbs.save import forget
from lakevilla_testing.histories.attempts import COLUMNS, context_of
from lakevilla_testing.histories.exhaustive import set_up_once
from lakevilla_testing.tables import delta_writer, iceberg_writer
from lakevilla_testing.tables.reader import run_now, table_rows
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.heartbeat import SimulatedHeartbeat
from lakevilla_testing.world.programs import as_program
from lakevilla_testing.world.scheduler import Simulation

TABLES = ("a", "b")
RI = Feature.R | Feature.I
RCT = Feature.R | Feature.CT
RCTI = Feature.R | Feature.CT | Feature.I


@set_up_once
def lake(faults=None, schedule=None, *, tables=TABLES, warm=True, iceberg=(), marked=(), **options):
    """Return a simulation whose store has tables of two accounts each, in HEAD if ``warm``.

    Tables in ``iceberg`` are Iceberg tables, the others are Delta tables. Those in ``marked`` have
    ten accounts, and their rows may be marked as deleted.
    """
    simulation = Simulation(faults=faults, schedule=schedule, **options)
    maker = Simulation(1)
    maker.store = simulation.store

    def set_up(client):
        for table in tables:
            ids = range(10 if table in marked else 2)
            rows = [{"id": n, "balance": 100, "items": ""} for n in ids]
            clients = iceberg_writer if table in iceberg else delta_writer
            own = {"marks": True} if table in marked else {}
            yield from clients.create(client, table, COLUMNS, rows, **own)
        if warm:
            # The tables are in HEAD, so the lake's gc cleans up their files.
            txn = begin(client)
            for table in tables:
                yield from add_to(txn, table, 0)
            yield from commit(txn)

    maker.add("setup", set_up)
    maker.run()
    return simulation


def begin(client, features=RI, context=None, key=None, **options):
    context = context or context_of(client)
    txn = _begin(TransactionState(context, client.ids.txn_id(), Options(features, **options)))
    txn.through_head = bool(features & (Feature.I | Feature.CT))
    txn.claims.key = key
    return txn


def add_to(txn, table, amount, number=0):
    """Update one account."""
    operation = Update(
        table,
        {"balance": parse_expression(f"balance + {amount}")},
        parse_predicate(f"id = {number}"),
    )
    return (yield from execute(txn, operation, "update"))


def set_to(txn, table, balance, number=0):
    """Write a balance that the caller has computed."""
    operation = Update(
        table, {"balance": parse_expression(str(balance))}, parse_predicate(f"id = {number}")
    )
    return (yield from execute(txn, operation, "update"))


def read(txn, table, where="id >= 0"):
    """Return the balances, as the transaction's caller reads them."""
    rows = (yield from scan(txn, table, None, parse_predicate(where))).read_all().to_pylist()
    return {row["id"]: row["balance"] for row in rows}


def transfer(client, source="a", target="b", amount=1, features=RI, **options):
    """Transfer an amount between two tables in one commit; return "lost" if it was refused."""
    txn = begin(client, features, **options)
    try:
        yield from add_to(txn, source, -amount)
        yield from add_to(txn, target, amount)
        yield from commit(txn)
    except (ConflictError, TransactionAborted):
        yield from end(txn)
        return "lost"
    return "committed"


def balances(simulation, *tables):
    """Return all balances by table and id, as a reader of the bare format finds them."""
    return {
        table: {row["id"]: row["balance"] for row in table_rows(simulation.store, table)}
        for table in tables or TABLES
    }


def alone(simulation, program, name):
    """Run one program on the simulation's store, in a process of its own, without faults."""
    client = simulation_client(simulation, name)

    def pass_by(seconds):
        simulation.now += seconds + 0.001  # no client wakes at the exact time

    return run_now(simulation.store, program(client), pass_by)


def simulation_client(simulation, name):
    return Client(simulation, name, f"{simulation.seed}/{name}", 1.0)


class Process:
    """A program that a test runs up to a chosen request, and continues from there."""

    def __init__(self, simulation, program, name="process"):
        self.simulation = simulation
        self.client = simulation_client(simulation, name)
        self._steps = _flat(program(self.client))
        self.done = False
        self.result = None
        self.next = None
        self._resume(None)

    def until(self, word, verb=Put):
        """Stop right before the next ``verb`` whose key contains ``word``."""
        while not self.done:
            if isinstance(self.next, verb) and word in self.next.key:
                return self
            self.step()
        raise AssertionError(f"it ended without {verb.__name__} of {word}: {self.result!r}")

    def step(self):
        """Make the next request; return it, with its answer."""
        request = self.next
        if isinstance(request, Sleep):
            self.simulation.now += request.seconds
            answer = None
        elif isinstance(request, Await):
            assert request.gate.is_open, "it waits for another program of its process"
            answer = None
        else:
            answer = self.simulation.store.apply(request)
        self._resume(answer)
        return request, answer

    def answer(self, answer):
        """Answer the next request without performing it; return the request."""
        request = self.next
        self._resume(answer)
        return request

    def lose(self):
        """Give the next request no answer; return it, for it may be stored later."""
        request = self.next
        self._resume(Unknown("the connection was cut"))
        return request

    def fail(self, error):
        """Let the store refuse the next request with an error; return the request."""
        request = self.next
        self._resume(None, error)
        return request

    def interrupt(self):
        """Interrupt at the next request (Ctrl-C) without an answer; return it, for it may be stored
        later.
        """
        request = self.next
        self._resume(None, KeyboardInterrupt())
        return request

    def finish(self):
        while not self.done:
            self.step()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def _resume(self, answer, error=None):
        try:
            steps = self._steps
            self.next = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            self.done, self.result = True, stop.value
        except LakeVillaError as error:
            self.done, self.result = True, error


def _flat(program):
    """Yield a program's single requests, the parts of a ``Parallel`` one after the other."""
    answer = None
    error = None
    while True:
        try:
            effect = program.send(answer) if error is None else program.throw(error)
        except StopIteration as stop:
            return stop.value
        answer, error = None, None
        if isinstance(effect, Parallel):
            answer = []
            for part in effect.parts:
                try:
                    answer.append((yield from _flat(as_program(part))))
                except LakeVillaError as raised:
                    error = error or raised
        elif isinstance(effect, List):
            answer = sorted((yield effect), key=lambda info: info.key)
        else:
            try:
                answer = yield effect
            except (LakeVillaError, KeyboardInterrupt) as raised:
                error = raised


class Member:
    """A client that runs one transaction as ``lake.run`` does, with a heartbeat.

    It begins ``after`` seconds later. ``body(txn)`` is its program. ``ids`` has the id of each
    attempt, ``events`` the events of the protocol, ``result`` is "committed" or the last error, and
    ``ended`` is the time at which the result was known.
    """

    def __init__(self, simulation, name, body, features=RCTI, *, after=0.0, attempts=10, **options):
        self.simulation = simulation
        self.name = name
        self.body = body
        self.features = features
        self.after = after
        self.attempts = attempts
        self.options = options
        self.events = []
        self.ids = []
        self.result = None
        self.ended = None
        self.client = simulation.add(name, self._program)

    def kinds(self, kind):
        """Return the events of a kind."""
        return [event for event in self.events if event.kind == kind]

    def _program(self, client):
        yield from sleep(self.after)
        runner = Runner(client, self.events.append)
        self.result = yield from runner.run(
            self.body, self.features, attempts=self.attempts, ids=self.ids, **self.options
        )
        self.ended = self.simulation.now


class Runner:
    """A process with a heartbeat that runs transactions one after the other, as
    ``lake.run`` does.
    """

    def __init__(self, client, notify=lambda event: None):
        self.client = client
        self.context = context_of(client)
        self.context.notify = notify
        self.heartbeat = SimulatedHeartbeat(client, self.context.settings.lease_seconds)
        self.context.renewed = self.heartbeat.add

    def run(self, body, features=RCTI, *, attempts=10, ids=None, rest=0.0, **options):
        """Run one transaction, again after each conflict and a ``rest``; return "committed", or the
        error.
        """
        ids = [] if ids is None else ids
        kept, result = None, None
        for losses in range(attempts):
            if kept is None:
                txn = begin(self.client, features, self.context, **options)
            else:
                escalate = losses >= self.context.settings.escalate_after
                txn = yield from rerun.rerun(kept, escalate=escalate)
            ids.append(txn.id)
            kept = None
            try:
                yield from body(txn)
                yield from commit(txn)
            except ConflictError as error:
                result, kept = error, txn
                yield from sleep(rest)
            except TransactionAborted as error:
                result = error
                yield from end(txn)
            except AlreadyCommitted:
                yield from end(txn)
                self.heartbeat.drop(txn)
                raise
            else:
                result = "committed"
                break
        if kept is not None:
            yield from end(kept)
        self.heartbeat.drop(txn)
        return result


def end(txn):
    """Undo a transaction that will not be rerun."""
    yield from forget(txn)
    yield from abort(txn)
