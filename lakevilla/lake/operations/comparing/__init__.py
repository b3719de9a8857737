"""Comparing rows one by one, to apply changes to a table whose files were rewritten since.

``merging`` decides whether a row must be inserted, updated or deleted, and makes a merge of these
acts. ``met`` lets the tasks of an engine do the same if no process can hold all rows.
"""
