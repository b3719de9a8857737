"""Table formats: what the protocol needs of a table's log, and the formats that give it.

``base`` is the interface; each format has its package. May import the store's
effects and expressions, nothing of transactions.
"""
