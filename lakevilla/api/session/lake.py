"""Sessions as a verb of a lake."""

from __future__ import annotations

import inspect
from typing import Any, Generic, cast, get_args

from lakevilla.api.arguments import check_choice
from lakevilla.api.begin import begin_transaction
from lakevilla.api.frame import Frame
from lakevilla.api.session.host import Host
from lakevilla.api.session.options import checked_limits
from lakevilla.api.session.session import Session
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.rules import Isolation
from lakevilla.settings import shown
from lakevilla.transaction.state.features import Feature

__all__ = ["Sessions"]


class Sessions(Generic[Frame]):
    """What a lake does with texts of many statements."""

    def session(
        self,
        isolation: Isolation | None = None,
        features: Feature | None = None,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        timeout_seconds: float | None = None,
        **transaction_options: Any,
    ) -> Session[Frame]:
        """Begin a session, which runs SQL statements and keeps a transaction open between them.

        Parameters
        ----------
        isolation, features : optional
            Of its transactions, as for ``transaction``; SET and BEGIN change them.
        max_rows, max_bytes : int, optional
            The most rows that a query may find, and the most bytes that they take as Arrow. It
            stops there with an error, and has read little more. SET changes them.
        timeout_seconds : float, optional
            How long a statement may run; its commit is never cut off.
        **transaction_options
            As for ``transaction``, except ``idempotency_key``.

        Raises
        ------
        InvalidOperation
            An option is unknown, or belongs to one transaction alone; or a limit is given, and the
            lake is one with ``spark=``.

        Examples
        --------
        >>> session = lake.session()
        >>> rows = session.sql("INSERT INTO orders VALUES (2, 'jam'); SELECT sku FROM orders")
        >>> rows["sku"].to_pylist()
        ['tea', 'jam']
        """
        options = dict(transaction_options)
        if "idempotency_key" in options:
            raise InvalidOperation(
                "an idempotency_key belongs to one transaction, and a session has many: pass it to "
                "lake.transaction() or lake.run()"
            )
        known = tuple(inspect.signature(begin_transaction).parameters)[2:-1]
        for name in options:
            if name not in known:
                raise InvalidOperation(
                    f"unknown transaction option {name!r}: choose from {', '.join(known)}"
                )
        if isolation is not None:
            check_choice("isolation", isolation, *get_args(Isolation))
            options["isolation"] = isolation
        if features is not None:
            if not isinstance(features, Feature):
                raise InvalidOperation(
                    f"features must be a lakevilla.Feature, not {shown(features)}"
                )
            options["features"] = features
        host = cast("Host[Frame]", self)
        given = {"max_rows": max_rows, "max_bytes": max_bytes, "timeout_seconds": timeout_seconds}
        return Session(host, options | checked_limits(host._executor.dialect, given))
