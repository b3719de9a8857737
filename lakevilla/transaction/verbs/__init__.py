"""The verbs by which a caller uses a transaction before its commit."""
