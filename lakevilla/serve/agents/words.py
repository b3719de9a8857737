"""Messages of errors in the words of an agent's tools."""

from __future__ import annotations

import re

#: Python's calls in messages, and the tools that do the same, or who may.
_FOR_AGENTS = {
    r"`tables\(\)` lists the lake's tables, `discover\(\)` those that are not in it yet": (
        "list_tables lists the tables"
    ),
    r"; register the data as a table or pass it in views": ": SQL reads the lake's tables alone",
    r": give it a name by lake\.register\(.*": ": an agent reads the lake's tables alone",
    r"; read less, or raise the limit": ": read less, or aggregate",
    r"; narrow it by WHERE or LIMIT, or raise the limit": ": narrow it by WHERE or LIMIT",
    r"; to query a frame, pass views=.*": "",
    r"check `refs\(\)`": "list_branches lists the refs",
    r"`rebase\('[^']*'\)` on the lake": "rebase",
    r", or on_conflict='ours' or 'theirs'": "",
    r": see rows\(\) of this error, then give on_conflict='ours' or 'theirs'": (
        ": read it with ref main and on the branch, then discard the branch and do it again on the "
        "lake as it is now, or let a person merge"
    ),
    r"; give it in params, which has none": ": write the value itself",
    r": write it as :name, and pass params=.*": ": write the value itself",
    r", or pass exist_ok=True or or_replace=True": ", or write CREATE OR REPLACE TABLE",
    r", or txn\.upsert\(\.\.\.\)|, or upsert\(\)": "",
    r"; pass rows in views=\{name: rows\}, or use WITH": "; use WITH",
    r"raise memory_limit_bytes in the settings or narrow the statement": "narrow the statement",
}


def for_agents(message: str) -> str:
    """Return an error's message with tools in place of Python's calls."""
    for pattern, words in _FOR_AGENTS.items():
        message = re.sub(pattern, words, message)
    return message
