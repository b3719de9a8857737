"""Waiting for other transactions over all tables, and giving way in a cycle of waits.

See design, section 7. The graph and the choice of the transaction that gives way are pure: no
store, no clock, no state.
"""
