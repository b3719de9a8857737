"""``lakevilla sql``: statements from an argument, files or a pipe, and what they print.

It may import what all commands share.
"""
