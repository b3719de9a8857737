"""Commits that their owners let any other process take into HEAD."""
