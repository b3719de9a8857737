"""What grows with the size of a lake: its tables, a table's files and commits, its bytes."""
