"""Sessions: SQL statements one after the other, in the transactions that they begin and end.

It may import what transactions are, and knows a lake by the verbs that it calls.
"""

from lakevilla.api.session.session import Session, Sessions

__all__ = ["Session", "Sessions"]
