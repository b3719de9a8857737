"""Which statements of a text are one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakevilla.api.session.placing import placing
from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.script.control import Begin, Commit, Rollback, SetOption
from lakevilla.sql.statements.script.parsing import Apart, Block, Node, OfRows, Parsed, Telling

__all__ = ["One", "Whole", "planned", "refuse_in_transaction"]


_KINDS = ("BRANCH", "TAG")
_NESTED = "a transaction is open, and can't hold another: COMMIT or ROLLBACK it first"


@dataclass(frozen=True, slots=True)
class One:
    """A statement by itself: in the transaction that is open, or in one of its own."""

    statement: Parsed


@dataclass(frozen=True, slots=True)
class Whole:
    """Statements that are a transaction from its beginning to its end.

    They can be run again after a conflict: nobody has seen anything of them. ``begin`` is None
    where the text does not say where it begins; then the last statement has the result.
    """

    begin: Begin | None
    statements: tuple[Parsed, ...]

    @property
    def reads(self) -> bool:
        """Whether nothing is written, so that one state is all that is needed."""
        return self.begin is None and all(only_reads(one) for one in self.statements)


def only_reads(statement: Parsed) -> bool:
    """Whether a statement changes nothing."""
    node = statement.node
    return isinstance(node, Telling) or (isinstance(node, OfRows) and node.reads)


def planned(statements: Sequence[Parsed], *, is_open: bool) -> list[One | Whole]:
    """The parts of a text, in their order.

    Raises
    ------
    InvalidOperation
        A statement can't stand where it does.
    """
    if not is_open and not any(_is_control(one) for one in statements):
        return list(_alone(statements))
    return list(_scripted(statements, is_open))


def _is_control(statement: Parsed) -> bool:
    return isinstance(statement.node, Begin | Commit | Rollback | Block)


def _alone(statements: Sequence[Parsed]) -> Iterator[One | Whole]:
    """A text that says nothing of transactions is one."""
    first = 0
    while first < len(statements) and isinstance(statements[first].node, SetOption):
        yield One(statements[first])
        first += 1
    rest = tuple(statements[first:])
    if len(rest) == 1:
        yield One(rest[0])
    elif rest:
        _refuse_outside(rest)
        yield Whole(None, rest)


def _scripted(statements: Sequence[Parsed], is_open: bool) -> Iterator[One | Whole]:
    place = 0
    while place < len(statements):
        one = statements[place]
        node = one.node
        with placing(one.number, one.source, is_script=len(statements) > 1):
            _refuse_at(node, is_open)
        if isinstance(node, Block):
            _refuse_outside(node.inner)
            yield Whole(Begin(), node.inner)
        elif isinstance(node, Begin):
            end = _end(statements, place)
            if end is not None and isinstance(statements[end].node, Commit):
                inner = tuple(statements[place + 1 : end])
                _refuse_outside(inner)
                yield Whole(node, inner)
                place = end
            else:
                is_open = True
                yield One(one)
        else:
            if isinstance(node, Commit | Rollback):
                is_open = False
            yield One(one)
        place += 1


def _refuse_at(node: Node, is_open: bool) -> None:
    """Refuse what ends no transaction, or begins one in another."""
    if is_open and isinstance(node, Begin | Block):
        raise InvalidOperation(_NESTED)
    if not is_open and isinstance(node, Commit | Rollback):
        word = "COMMIT" if isinstance(node, Commit) else "ROLLBACK"
        raise InvalidOperation(f"no transaction is open: {word} follows a BEGIN")


def _end(statements: Sequence[Parsed], begin: int) -> int | None:
    """Where the transaction ends that begins there; None if not in this text."""
    for place in range(begin + 1, len(statements)):
        if isinstance(statements[place].node, Commit | Rollback | Begin | Block):
            return place
    return None


def _refuse_outside(statements: Sequence[Parsed]) -> None:
    """Refuse in a transaction what can't be part of one."""
    for one in statements:
        with placing(one.number, one.source, is_script=True):
            refuse_in_transaction(one)


def refuse_in_transaction(statement: Parsed) -> None:
    """Refuse what takes effect at once.

    Raises
    ------
    InvalidOperation
    """
    node = statement.node
    if isinstance(node, SetOption):
        raise InvalidOperation(
            f"a transaction keeps the {node.name} that it began with: SET it before, or give it "
            "to BEGIN"
        )
    if isinstance(node, Apart):
        raise InvalidOperation(
            f"{_words(statement.text)} takes effect by itself, and can't be part of a transaction: "
            "run it alone"
        )
    if isinstance(node, Begin | Block):
        raise InvalidOperation(_NESTED)


def _words(text: str) -> str:
    first, *rest = text.split()[:2]
    return " ".join([first, *(word for word in rest if word.upper() in _KINDS)]).upper()
