"""Sessions: SQL statements one after the other, in the transactions that they begin and end.

It may import what transactions are, and knows a lake by the verbs that it calls.
"""

from lakevilla.api.session.lake import Sessions
from lakevilla.api.session.session import Session

__all__ = ["Session", "Sessions"]
