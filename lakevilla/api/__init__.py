"""The public API: lakes, transactions, snapshots and tables (design, section 12).

Synchronous objects over the programs below; the only place where names,
Python data and SQL text become locations, Arrow and trees.
"""
