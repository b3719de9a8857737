"""The protocol: views, conflicts, commit, publishing, reconciling, recovery.

Programs and pure functions; no I/O, no clocks of its own. May import the global
log, sublogs, formats and the engine interface, and what stands above them.
"""
