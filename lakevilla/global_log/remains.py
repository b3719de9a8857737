"""What a lake leaves behind when its HEAD is lost (docs/design/0021-head-lost.md).

HEAD is created before anything else of a lake, and nobody ever deletes it. So whoever lists
remains and then finds no HEAD looks at a lake that has lost it, and not at a new one.
"""

from __future__ import annotations

from lakevilla.errors import CorruptObject
from lakevilla.global_log.commits import COMMITS_PREFIX
from lakevilla.global_log.head import HEAD_KEY, PAGES_PREFIX
from lakevilla.global_log.head_log import HEADS_PREFIX
from lakevilla.global_log.keys import KEYS_PREFIX
from lakevilla.global_log.leaves import LEAVES_PREFIX
from lakevilla.global_log.recent_heads import RECENT_PREFIX
from lakevilla.global_log.refs import BASES_PREFIX
from lakevilla.store.effects import Program, list_objects

#: The directory of all that a lake has of its own at its root.
HOME = "_lakevilla"
#: Where objects lie that can only be there because a HEAD was.
PREFIXES = (
    COMMITS_PREFIX,
    PAGES_PREFIX,
    LEAVES_PREFIX,
    HEADS_PREFIX,
    KEYS_PREFIX,
    BASES_PREFIX,
    RECENT_PREFIX,
)
_KINDS = tuple(f"{prefix}/" for prefix in PREFIXES)

#: What to do about it, in words.
REBUILD = "restore the newest copy, or rebuild it with `lakevilla recover ROOT --rebuild-head`"


def is_remains(key: str) -> bool:
    """Whether an object can only be there because a HEAD was."""
    return key.startswith(_KINDS)


def find_remains() -> Program[list[str]]:
    """The keys of what a lake has left here: one LIST."""
    listed = yield from list_objects(HOME)
    return [info.key for info in listed if is_remains(info.key)]


def head_lost(evidence: str, *, table: str | None = None) -> CorruptObject:
    """The error of one who finds a lake without its HEAD."""
    return CorruptObject(f"{HEAD_KEY} is lost: {evidence}; {REBUILD}", key=HEAD_KEY, table=table)
