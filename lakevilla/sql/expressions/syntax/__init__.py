"""The text of an expression: what sqlglot reads in it, and what to write where it reads nothing."""
