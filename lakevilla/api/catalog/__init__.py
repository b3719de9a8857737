"""The lake's catalog by verbs: pages of its tables, and paths."""
