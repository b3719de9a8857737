"""Waits between transactions over all tables, and the choice of the one that yields.

See design, section 7. Values in, values out: no store, no clock, no state.
"""
