"""The text of an expression: its nodes in sqlglot, and advice where sqlglot can't read it."""
