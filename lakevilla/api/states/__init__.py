"""The states of a lake, as its users read and check them.

It may import what snapshots, tables and refs are, and knows nothing of how a lake is opened.
"""

from lakevilla.api.states.lake_states import States
from lakevilla.api.states.verifying import Verifying

__all__ = ["States", "Verifying"]
