"""``lakevilla shell``: a prompt for statements over a lake.

``completing`` offers what may stand at the cursor, ``short`` has the commands that begin with a
backslash, ``loop`` reads, runs and prints. prompt_toolkit is known to ``prompt`` alone.
"""
