"""States of tables that lie apart from the tables' logs: tags and branches that were kept.

Knows formats and the store, and no log.
"""
