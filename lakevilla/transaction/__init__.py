"""One transaction, from its first use to its end; read ``commit.commit`` first.

The packages, each above the one before: ``state`` (data), ``redo``, ``validation``, ``queue``,
``verbs``, ``commit``. They consist of programs and pure functions, which do no I/O and read no
clock but that of the context.
"""
