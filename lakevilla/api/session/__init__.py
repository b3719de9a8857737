"""Sessions: SQL statements run one after the other, in transactions that they begin and end.

This package imports the modules of transactions; it uses a lake only by the interface ``Host``.
"""

from lakevilla.api.session.session import Session

__all__ = ["Session"]
