"""Comparing rows one by one, to apply changes to a table whose files were rewritten since.

``rows`` decides what must be done to a row, ``merging`` how that is done to a table, and
``by_tasks`` has the tasks of an engine do it, where no process holds all rows.
"""
