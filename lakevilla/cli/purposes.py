"""The commands by their purpose, in the order in which the help lists them."""

from __future__ import annotations

#: The commands of each purpose.
PURPOSES: dict[str, tuple[str, ...]] = {
    "Tables": (
        *("tables", "schema", "create", "register", "rename", "drop", "unregister"),
        *("guard", "unguard", "export"),
    ),
    "SQL": ("sql", "shell", "query"),
    "History": (
        *("log", "versions", "snapshot", "changes", "diff", "absorb"),
        *("rollback", "restore", "revert", "cherry-pick"),
    ),
    "Branches and tags": (
        *("branch", "tag", "clone", "refs", "merge", "rebase"),
        *("protect", "unprotect", "keep"),
    ),
    "Transactions": ("txns", "outcome", "abort"),
    "Upkeep": (
        *("doctor", "metrics", "verify", "recover", "maintain"),
        *("optimize", "vacuum", "gc", "backup", "restore-lake"),
    ),
    "Other": ("config", "serve", "ui", "mcp", "demo", "bench"),
}
#: Second names, which other tools have, and the commands that they call.
ALIASES = {"ls": "tables", "status": "doctor", "history": "log"}

_PLACES = {
    name: (place, purpose)
    for place, (name, purpose) in enumerate(
        (name, purpose) for purpose, names in PURPOSES.items() for name in names
    )
}


def purpose_of(name: str) -> str:
    """Return the purpose below which the help lists a command."""
    return _PLACES[name][1]


def place_of(name: str) -> int:
    """Return a command's place in the help; names without one, which are hidden, come last."""
    return _PLACES.get(name, (len(_PLACES), ""))[0]


def aliases_of(name: str) -> list[str]:
    """Return the second names of a command."""
    return [alias for alias, called in ALIASES.items() if called == name]
