"""The states of a lake, as its users read and check them.

It may import what snapshots, tables and refs are, and knows nothing of how a lake is opened.
"""

from lakevilla.api.states.lake_states import States

__all__ = ["States"]
