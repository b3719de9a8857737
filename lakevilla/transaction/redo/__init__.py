"""Redo operations on a newer state, and perform deferred operations."""
