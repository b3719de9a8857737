"""``lakevilla sql``: statements from an argument, files or a pipe, and their output.

This package may import the common parts of all commands.
"""
