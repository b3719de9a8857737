r"""CHECK constraints: text in a table's log, which every writer reads as its own SQL.

To Spark a backslash in a string begins an escape, to others it is a character: ``'\d'`` is a
digit here and the letter d there. Such a text is refused, so that no writer is let past a
rule that another one holds.
"""

from __future__ import annotations

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.tree import Expr, Literal
from lakevilla.sql.expressions.walk import children


def parse_constraint(sql: str) -> Expr:
    """A constraint as a tree.

    Raises
    ------
    InvalidOperation
        As ``parse_predicate``; or a string has a backslash.
    """
    tree = parse_predicate(sql)
    pending: list[Expr] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Literal) and node.type == "string" and "\\" in (node.value or ""):
            raise InvalidOperation(
                f"the text {node.value!r} in a constraint has a backslash, which Spark reads "
                "otherwise than others: in a pattern write [0-9] for a digit and [.] for a dot"
            )
        pending += children(node)
    return tree
