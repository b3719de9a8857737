"""Validation: ``examine`` finds out whether a transaction may move to a newer HEAD."""
