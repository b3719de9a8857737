"""Comparing rows one by one, to apply what changed to a table that others have rewritten.

``rows`` tells what is to be done to a row, ``merging`` how that is done to a table, and
``by_tasks`` has the tasks of an engine do it, where no process holds all rows.
"""
