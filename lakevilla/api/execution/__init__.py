"""Execute a transaction's verbs. Modules above this package have the methods that users call."""
