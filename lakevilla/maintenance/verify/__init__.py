"""Verification that all objects and data files of a lake exist, and are what was written.

``verify`` is the whole check, ``files`` the check of data files, which the doctor also uses for its
own report, and ``objects`` that of objects with their hashes in their names. They only report.
"""
