"""The inbox: proposals of commits that any process may include in its replacement of HEAD."""
