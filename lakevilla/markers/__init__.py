"""Markers: intentions to read, append to or write a table, and their order (design, section 5).

A marker is a hint: it gives order and fairness, and prevents starvation. Safety depends on the
commit point alone. Any error here costs a wait or a redo.

``marker`` and ``repo`` have single markers, ``queue`` the states and the order of tickets.
``claims``, ``places``, ``ahead``, ``reservation`` and ``stale`` have the places of one transaction.
"""
