"""One transaction, from its first use to its end; read ``commit.commit`` first.

Its rooms, each above the one before: ``state`` (data), ``redo``, ``validation``, ``queue``,
``verbs``, ``commit``. Programs and pure functions; no I/O, no clocks of its own.
"""
