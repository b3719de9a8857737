"""Sessions of SQL over a lake, and their settings."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Generic, Self, get_args

from lakevilla.api.arguments import check_choice, check_number, check_views, parameters
from lakevilla.api.border import with_border
from lakevilla.api.client.discovering import refuse_places
from lakevilla.api.execution.inserting import constants_in_a_view
from lakevilla.api.frame import Frame
from lakevilla.api.run import begin_transaction, check_options, check_timeout
from lakevilla.api.session.performing import perform, run_separately, tell
from lakevilla.api.session.planning import (
    Given,
    Host,
    One,
    Whole,
    only_reads,
    placing,
    planned,
    refuse_in_transaction,
    script_text,
)
from lakevilla.api.snapshot import Snapshot, once
from lakevilla.api.transaction import Transaction
from lakevilla.engines.statistics import LIMITS, StatementLimits, limited
from lakevilla.errors import InvalidOperation, RefNotFound
from lakevilla.global_log.rules import Isolation
from lakevilla.results import CommitResult, OperationResult
from lakevilla.settings import shown
from lakevilla.sql.statements.script.control import (
    SETTINGS,
    Begin,
    Commit,
    Rollback,
    SetOption,
    refuse_unmatched,
)
from lakevilla.sql.statements.script.cutting import ScriptStatement, is_complete, statements_of
from lakevilla.sql.statements.script.parsing import Parsed, Separate, named_tables, parsed
from lakevilla.sql.statements.script.refs import CreateRef, DropRef, MergeBranch, UseBranch
from lakevilla.transaction.state.values import Feature

__all__ = [
    "Session",
    "DEFAULTS",
    "begin_session",
    "limited_to",
    "refuse_higher",
    "refuse_of_spark",
    "setting",
    "spelled",
]

# -------------------- session
#
# A session: its statements, and the transaction that is open in it.


@with_border
class Session(Generic[Frame]):
    """SQL statements one after the other, and the transaction that is open between them.

    ``lake.session()`` returns a session. Outside BEGIN and COMMIT each text is a transaction of its
    own, which is run again after a conflict. At the end of a ``with`` block an open transaction is
    undone. Use it in one thread at a time.

    Examples
    --------
    >>> with lake.session() as session:
    ...     session.sql("BEGIN")
    ...     _ = session.sql("UPDATE stock SET qty = qty - 1 WHERE sku = 'tea'")
    ...     _ = session.sql("INSERT INTO orders VALUES (2, 'tea')")
    ...     sorted(session.sql("COMMIT").versions)
    ['orders', 'stock']
    """

    def __init__(self, lake: Host[Frame], options: Mapping[str, Any]) -> None:
        self._lake = lake
        self._begun_with = dict(options)
        self._options = dict(options)
        self._transaction: Transaction[Frame] | None = None
        self._last: Transaction[Frame] | None = None
        self._is_closed = False

    # -- lifetime ----------------------------------------------------------------

    @property
    def transaction(self) -> Transaction[Frame] | None:
        """The open transaction; None outside BEGIN and COMMIT."""
        return self._transaction

    @property
    def last_transaction(self) -> Transaction[Frame] | None:
        """The transaction of the last call of ``sql``, open or ended; None if the call needed none.

        After an interrupt, ``Lake.outcome`` reports for its id whether the transaction has
        committed.
        """
        return self._last

    def __repr__(self) -> str:
        txn = self._transaction
        state = "closed" if self._is_closed else "no transaction" if txn is None else repr(txn)
        return f"<lakevilla.Session of {self._lake!r}: {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Undo the open transaction, and take no more statements."""
        self._is_closed = True
        self._rollback()

    # -- statements --------------------------------------------------------------

    def statements(self, text: str) -> list[ScriptStatement]:
        """Return the statements of a text, each with the line on which it begins.

        The text between BEGIN ATOMIC and END is one statement.

        Parameters
        ----------
        text : str
            Statements with semicolons between them.

        Raises
        ------
        InvalidOperation
            A quote, a comment or a block is not closed.
        """
        return statements_of(script_text(text), self._dialect)

    def is_complete(self, text: str) -> bool:
        """Return whether a text that is being typed ends with a statement and its semicolon.

        Parameters
        ----------
        text : str
            SQL, as far as it is typed.
        """
        return is_complete(script_text(text), self._dialect)

    def sql(
        self,
        text: str,
        params: Mapping[str, object] | None = None,
        views: Mapping[str, object] | None = None,
    ) -> Frame | OperationResult | CommitResult | None:
        """Run the statements of a text, and return the result of the last one.

        Many statements without BEGIN are one transaction. So are those between BEGIN and COMMIT. A
        transaction that is wholly in one text is run again after a conflict, as by ``Lake.run``.
        All statements are parsed before the first is run.

        Parameters
        ----------
        text : str
            Statements with semicolons between them.
        params : Mapping, optional
            Values of ``:name`` in the SQL.
        views : Mapping, optional
            Frames by the names that the statements use for them.

        Returns
        -------
        Frame, OperationResult, CommitResult or None
            Rows of a query; counts of a statement that writes; for COMMIT and END the result of
            ``Transaction.commit``.

        Raises
        ------
        InvalidOperation, ConflictError, TableNotFound
            In a text of many statements the message names the statement and its line. A statement
            that raises has changed nothing. The transaction of an earlier BEGIN stays open.
        """
        if self._is_closed:
            raise InvalidOperation("the session is closed: begin another by lake.session()")
        values, frames = parameters(params, nested=True), check_views(views)
        text, frames = constants_in_a_view(
            self._lake._client, script_text(text), frames, self._dialect
        )
        found = self.statements(text)
        if not found:
            raise InvalidOperation("sql is empty; give a statement as text")
        is_script = len(found) > 1 or bool(found[0].inner)
        statements: list[Parsed] = []
        for one in found:
            number = len(statements) + 1
            with placing(number, one, is_script=is_script):
                statements.append(parsed(one, number, self._dialect))
                self._refuse_places(statements[-1])
        refuse_unmatched(text, values, self._dialect)
        self._last = self._transaction
        result: Frame | OperationResult | CommitResult | None = None
        for part in planned(statements, is_open=self._transaction is not None):
            given = Given(self._lake, values, frames, self._dialect, self._settings())
            if isinstance(part, Whole):
                with self._back_from_its_branch():
                    result = self._whole(part, given)
            else:
                with (
                    self._back_from_its_branch(),
                    placing(part.statement.number, part.statement.source, is_script=is_script),
                ):
                    result = self._one(part, given)
        return result

    @contextmanager
    def _back_from_its_branch(self) -> Iterator[None]:
        """Add "USE main" as advice to an error about the session's branch, if that was deleted."""
        try:
            yield
        except RefNotFound as error:
            name = self._lake._client.branch
            if name is not None and f"branch {name!r} was deleted" in error.message:
                error.message += "; USE main takes the session back to the lake itself"
                error.args = (error.message, *error.args[1:])
            raise

    def _refuse_places(self, statement: Parsed) -> None:
        """Refuse a statement that names a table outside of the lake, before any is run."""
        txn = self._transaction
        known = () if txn is None else txn._executor.state.work.tables
        for name in named_tables(statement):
            refuse_places(self._lake._client, name, known)

    @property
    def _dialect(self) -> Any:
        return self._lake._executor.dialect

    def _one(self, part: One, given: Given[Frame]) -> Frame | OperationResult | CommitResult | None:
        statement = part.statement
        match statement.node:
            case Begin() as node:
                self._begin(node)
            case Commit():
                return self._commit()
            case Rollback():
                self._rollback()
            case SetOption() as node:
                self._set(statement, node)
            case _ if self._transaction is not None:
                refuse_in_transaction(statement)
                with self._limited():
                    return perform(self._transaction, statement, given)
            case _:
                return self._alone(statement, given)
        return None

    def _alone(self, statement: Parsed, given: Given[Frame]) -> Frame | OperationResult | None:
        """Run a statement outside a transaction."""
        if isinstance(statement.node, Separate):
            return self._run_separately(statement.node, given)
        if only_reads(statement):
            with once(self._lake.snapshot()) as state, self._limited():
                return tell(state, statement, given)

        def body(txn: Transaction[Frame]) -> Frame | OperationResult | None:
            self._last = txn
            with self._limited():
                return perform(txn, statement, given)

        return self._lake.run(body, **self._of_transactions())

    def _run_separately(self, node: Separate, given: Given[Frame]) -> Frame | None:
        """Run a statement that takes effect by itself; USE binds the session to a branch."""
        if isinstance(node, CreateRef) and node.at is not None:
            node = replace(node, at=given.state(node.at))
        if isinstance(node, UseBranch):
            target = self._lake.on(node.name)
            with once(target.snapshot()) as state:
                _ = state.version  # raise an error if the branch has no such version
            self._lake = target
            return None
        # The lake and all its branches share one set of refs, so the lake performs these
        # statements.
        is_of_refs = isinstance(node, CreateRef | DropRef | MergeBranch)
        lake = self._lake.on("main") if is_of_refs else self._lake
        return run_separately(lake, node, self._of_transactions().get("features"))

    def _whole(
        self, part: Whole, given: Given[Frame]
    ) -> Frame | OperationResult | CommitResult | None:
        """Run a whole transaction, again after a conflict."""
        result: Frame | OperationResult | None = None
        if part.reads:
            with once(self._lake.snapshot()) as state:
                for one in part.statements:
                    with placing(one.number, one.source, is_script=True), self._limited():
                        result = tell(state, one, given)
            return result

        def body(txn: Transaction[Frame]) -> Frame | OperationResult | None:
            self._last = txn
            result: Frame | OperationResult | None = None
            for one in part.statements:
                with placing(one.number, one.source, is_script=True), self._limited():
                    result = perform(txn, one, given)
            return result

        options = self._of_transactions() if part.begin is None else self._with(part.begin)
        result = self._lake.run(body, **options)
        last = self._last
        if part.begin is None or last is None:
            return result
        return last.result or self._lake.outcome(last.id).result

    def _limited(self) -> AbstractContextManager[None]:
        """Return a block that limits one statement; a commit has no limit, since it must not be cut
        off.
        """
        return limited(limits_of(self._options))

    def _of_transactions(self) -> dict[str, Any]:
        return {name: one for name, one in self._options.items() if name not in LIMITS}

    # -- the transaction ---------------------------------------------------------

    def _with(self, begin: Begin) -> dict[str, Any]:
        """Return the options of a transaction that begins with this BEGIN statement."""
        own = {name: setting(name, text) for name, text in begin.settings.items()}
        return self._of_transactions() | own | ({"read_only": True} if begin.read_only else {})

    def _begin(self, node: Begin) -> None:
        self._last = self._transaction = self._lake.transaction(**self._with(node))

    def _commit(self) -> CommitResult:
        txn = self._transaction
        assert txn is not None, "planned so"
        try:
            return txn.commit()
        finally:
            if txn.state == "failed":
                self._rollback()
            elif txn.state != "open":
                self._transaction = None

    def _rollback(self) -> None:
        txn, self._transaction = self._transaction, None
        if txn is not None:
            txn.abort()

    def _settings(self) -> dict[str, object]:
        """Return the settings of the session's next transactions, for SHOW SETTINGS."""
        return {name: spelled(self._options.get(name, value)) for name, value in DEFAULTS.items()}

    def _set(self, statement: Parsed, node: SetOption) -> None:
        if self._transaction is not None:
            refuse_in_transaction(statement)
        if node.value is not None:
            refuse_of_spark(self._dialect, node.name)
            value = setting(node.name, node.value)
            refuse_higher(node.name, value, self._begun_with)
            self._options[node.name] = value
        elif node.name in self._begun_with:
            self._options[node.name] = self._begun_with[node.name]
        else:
            self._options.pop(node.name, None)


# -------------------- beginning
#
# Begin a new session of a lake.


def begin_session(
    lake: Host[Frame],
    isolation: Isolation | None,
    features: Feature | None,
    *,
    limits: Mapping[str, object],
    transaction_options: Mapping[str, Any],
) -> Session[Frame]:
    """Begin a session whose statements may have limits; see ``Lake.session``."""
    options = dict(transaction_options)
    if "idempotency_key" in options:
        raise InvalidOperation(
            "an idempotency_key belongs to one transaction, and a session has many: pass it to "
            "lake.transaction() or lake.run()"
        )
    check_options(options)
    if isolation is not None:
        check_choice("isolation", isolation, *get_args(Isolation))
        options["isolation"] = isolation
    if features is not None:
        if not isinstance(features, Feature):
            raise InvalidOperation(f"features must be a lakevilla.Feature, not {shown(features)}")
        options["features"] = features
    return Session(lake, options | checked_limits(lake._executor.dialect, limits))


# -------------------- options
#
# Settings of a session, in their spelling in SQL.


#: Values by which SET removes a limit; SHOW SETTINGS shows the last one.
_NO_LIMIT = ("none", "null", "default")

#: The default options of a session's transactions.
DEFAULTS: Mapping[str, object] = {
    name: one.default
    for name, one in inspect.signature(begin_transaction).parameters.items()
    if name in SETTINGS
} | dict.fromkeys(LIMITS)


def spelled(value: object) -> str:
    """Return a setting's value in the spelling that SET takes."""
    if isinstance(value, Feature):
        return ", ".join(str(one.name) for one in value) or "NONE"
    return "default" if value is None else str(value)


def setting(name: str, text: str) -> object:
    """Return the value of a setting in the form that ``Lake.transaction`` takes.

    Raises
    ------
    InvalidOperation
        The setting can't have that value.
    """
    plain = text.strip()
    if len(plain) > 1 and plain[0] == plain[-1] and plain[0] in "'\"":
        plain = plain[1:-1]
    if name == "features":
        return features_of(plain)
    if name in LIMITS:
        return None if plain.lower() in _NO_LIMIT else checked(name, _number(name, plain))
    if name == "slack":
        return check_number(name, _number(name, plain))
    if name in ("wait_timeout_seconds", "idle_timeout_seconds"):
        seconds = _number(name, plain)
        check_timeout(name, seconds)
        return seconds
    word = plain.lower()
    known = SETTINGS[name]
    for one in known:
        if word.replace(" ", "-").replace("_", "-") == one.replace("_", "-"):
            return one
    raise InvalidOperation(f"{name} is {' or '.join(known)}, not {plain!r}")


def checked(name: str, value: object) -> object:
    """Check and return a limit of statements; infinity becomes None.

    Raises
    ------
    InvalidOperation
        The limit is no number, or a number with which no statement could run.
    """
    if value is None:
        return None
    if name == "timeout_seconds":
        check_timeout(name, value)
        if value == 0:
            raise InvalidOperation("timeout_seconds is more than 0; leave it out for no limit")
        return None if value == math.inf else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidOperation(f"{name} is a whole number, 0 or more, not {shown(value)}")
    return value


def checked_limits(dialect: str, given: Mapping[str, object]) -> dict[str, object]:
    """Check and return the given limits of statements, without those that are None.

    Raises
    ------
    InvalidOperation
        A limit has a wrong value, or Spark runs the statements.
    """
    found = {name: checked(name, one) for name, one in given.items() if one is not None}
    refuse_of_spark(dialect, *found)
    return found


def limited_to(state: Snapshot[Frame], given: Mapping[str, object]) -> AbstractContextManager[None]:
    """Return a block that limits one query of a snapshot; see ``checked_limits``."""
    return limited(limits_of(checked_limits(state._executor.dialect, given)))


def limits_of(options: Mapping[str, Any]) -> StatementLimits:
    """Return the limits of a statement that a session's options set."""
    return StatementLimits(**{name: options.get(name) for name in LIMITS})


def refuse_higher(name: str, value: Any, begun_with: Mapping[str, Any]) -> None:
    """Refuse to raise a limit that the session was opened with: untrusted users may write its SQL.

    Raises
    ------
    InvalidOperation
    """
    most = begun_with.get(name) if name in LIMITS else None
    if most is not None and (value is None or value > most):
        raise InvalidOperation(
            f"the session was opened with {name} = {most}, and SET can only lower it: open another "
            "session for more"
        )


def refuse_of_spark(dialect: str, *names: str) -> None:
    """Refuse limits of statements with Spark, which reads rows only when a DataFrame is used.

    Raises
    ------
    InvalidOperation
    """
    given = [name for name in names if name in LIMITS]
    if given and dialect != "duckdb":
        raise InvalidOperation(
            f"Spark's statements take no {' or '.join(given)}: limit the rows of its frames, and "
            "set spark.driver.maxResultSize in its session",
            reason="unsupported",
        )


def features_of(text: str) -> Feature:
    """Return the features that a text names: ``R, CT, I`` in any order, or ``NONE``.

    Raises
    ------
    InvalidOperation
        A name in the text is not that of a feature.
    """
    found = Feature.NONE
    for word in text.replace("|", ",").replace("+", ",").split(","):
        name = word.strip().upper().removeprefix("FEATURE.").removeprefix("LV.FEATURE.")
        if not name or name not in Feature.__members__:
            near = get_close_matches(name, Feature.__members__, 1)
            meant = f": did you mean {near[0]}?" if near else ""
            raise InvalidOperation(
                f"features are R, CT and I, or NONE, not {word.strip()!r}{meant}"
            )
        found |= Feature[name]
    return found


def _number(name: str, text: str) -> int | float:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise InvalidOperation(f"{name} is a number, not {text!r}") from None
