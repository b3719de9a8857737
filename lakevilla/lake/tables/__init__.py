"""Adding tables to a lake and removing them. Knows no transaction."""
