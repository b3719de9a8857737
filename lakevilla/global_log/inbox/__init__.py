"""Commits that their owners let any other process include in HEAD."""
