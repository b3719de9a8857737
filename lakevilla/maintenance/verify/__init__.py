"""Whether all that a lake needs is there, and is what was written: its objects and data files.

``verify`` is the whole, ``files`` the check of data files, which the doctor has for its own too,
and ``objects`` that of what carries its hash in its name. They only tell.
"""
