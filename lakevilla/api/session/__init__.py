"""Sessions: SQL statements one after the other, in the transactions that they begin and end.

It may import the modules of transactions, and knows a lake only by the verbs that it calls.
"""

from lakevilla.api.session.session import Session

__all__ = ["Session"]
