"""The change feed of a lake, as its users request it."""
