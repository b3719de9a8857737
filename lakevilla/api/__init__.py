"""The public API: lakes, transactions, snapshots and tables (design, section 12).

The objects are synchronous and run the programs below; this is the only place where names, Python
data and SQL text become locations, Arrow and trees.
"""
