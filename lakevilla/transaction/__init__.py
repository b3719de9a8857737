"""One transaction, from its first use to its end; read ``commit.commit`` first.

The packages, each above the one before: ``state`` (data), ``redo``, ``validation``, ``queue``,
``verbs``, ``commit``. They hold programs and pure functions; no I/O, no clocks of their own.
"""
