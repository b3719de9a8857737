"""What an operation is given beside a table: rows, and queries that make them.

Read by whoever performs it, the first time and in a redo. Imports engines by their interface.
"""
