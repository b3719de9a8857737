"""Performing one operation on one state of a table, and the rows of a change."""
