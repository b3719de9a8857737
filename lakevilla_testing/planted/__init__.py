"""Bugs that are planted on purpose; each must be found."""
