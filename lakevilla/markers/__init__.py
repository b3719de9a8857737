"""Markers: who will read, append to or write a table, and in which order (design, section 5).

A marker is a hint: it gives order, fairness and no starvation, never safety, which rests on
the commit point alone. Whatever is wrong here costs a wait or a redo.
"""
