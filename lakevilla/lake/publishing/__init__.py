"""The publication of HEAD's decided commits in the tables' logs. Knows no transaction."""
