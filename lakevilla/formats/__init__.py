"""Table formats: the operations that the protocol needs of a table's log, and their formats.

``base`` is the interface; each format has its own package. The package may import the store's
effects and expressions, but nothing of transactions.
"""
