"""Verify that all objects and data files of a lake exist and are unchanged since they were written.

``verify`` is the whole check; ``files`` checks data files, for the doctor as well; ``objects``
checks the objects with a hash in their names. They only report.
"""
