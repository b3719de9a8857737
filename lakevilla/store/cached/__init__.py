"""Objects that never change, kept by the process that has read or written them, in a budget.

A key tells the content (it carries its hash), so what is kept can't be stale. That an object is
absent is never kept. Who has to know what lies in the store asks past it (``fresh``).
"""
