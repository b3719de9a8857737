"""The change feed of a lake, for its users."""
