"""``lakevilla shell``: a prompt for SQL statements over a lake.

``completing`` suggests completions at the cursor, ``screen`` has the commands that begin with a
backslash, ``loop`` reads, runs and prints. Only ``prompt`` uses prompt_toolkit.
"""
