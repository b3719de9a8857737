"""``lakevilla shell``: a prompt for statements over a lake.

``completing`` offers texts for the cursor, ``short`` has the commands that begin with a
backslash, ``loop`` reads, runs and prints. Only ``prompt`` uses prompt_toolkit.
"""
