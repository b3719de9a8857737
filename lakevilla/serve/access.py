"""The clients that may use a gateway: names of hosts, and tokens with their rights.

A file of tokens has a line for each right: a token, ``read`` or ``write``, and the states that it
is for. A token may have several lines.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request

from lakevilla.errors import InvalidOperation
from lakevilla.serve.refusal import Refusal

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]*))(?::\d*)?")
#: The names of this machine for clients on it.
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
#: A state of a lake, or the beginning of states' names. ``main`` is the lake itself.
_STATE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*\*?|\*")
_RIGHTS = {"read": False, "write": True}
#: What a token may have, so that a client can send it in a header.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=:-]+")


@dataclass(frozen=True, slots=True)
class Grant:
    """A right: to read states of the lake, and to write them if ``writes``."""

    writes: bool
    states: tuple[str, ...] = ("*",)

    def covers(self, state: str) -> bool:
        """Return whether the right is for a state."""
        return any(
            state.startswith(one[:-1]) if one.endswith("*") else state == one for one in self.states
        )


@dataclass(frozen=True, slots=True)
class Rights:
    """All rights of a client."""

    grants: tuple[Grant, ...]

    def may(self, state: str, *, writes: bool) -> bool:
        """Return whether the client may read a state, or write it."""
        return any(one.covers(state) and (one.writes or not writes) for one in self.grants)

    def check(self, state: str, *, writes: bool) -> None:
        """Refuse what the client may not do."""
        if not self.may(state, writes=writes):
            what = "write" if writes else "read"
            message = f"the token has no right to {what} {state}: the gateway's token file gives it"
            raise Refusal(403, "ForbiddenException", message)


#: The rights of a client of a gateway without tokens.
EVERYTHING = Rights((Grant(writes=True),))


@dataclass(frozen=True, slots=True)
class Access:
    """The rules by which a request is answered at all.

    Attributes
    ----------
    hosts : frozenset of str or None
        The names in the ``Host`` of requests that are answered; None: all. A page elsewhere can
        make a name of its own mean this machine, but not change what its requests call it.
    tokens : Mapping of str to Rights
        The rights of each bearer token. Without tokens each client may do everything.
    """

    hosts: frozenset[str] | None = LOOPBACK
    tokens: Mapping[str, Rights] = field(default_factory=dict)

    def rights(self, request: Request, token: str | None = None) -> Rights:
        """Return the rights of a request's client; refuse a request that may not be answered.

        ``token``: by which the client is known already; if not given, the request must have one.
        """
        self.check_host(request)
        if token is None:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            token = given if scheme.lower() == "bearer" else ""
        rights = self._rights_of(token)
        if rights is None:
            message = "a bearer token is needed: give the client one of the gateway's tokens"
            raise Refusal(401, "NotAuthorizedException", message)
        return rights

    def check_host(self, request: Request) -> None:
        """Refuse a request for a host that is not served here."""
        found = _HOST.fullmatch(request.headers.get("host", ""))
        name = "" if found is None else found["v6"] or found["name"]
        if self.hosts is not None and name.lower() not in self.hosts:
            message = f"host {name!r} is not served here: start the gateway with --host-name {name}"
            raise Refusal(421, "BadRequestException", message)

    def _rights_of(self, token: str) -> Rights | None:
        if not self.tokens:
            return EVERYTHING
        # All are compared, and wholly: the time says nothing of what is right about a wrong token.
        given, known = _digest(token), self.tokens.items()
        found = [rights for one, rights in known if hmac.compare_digest(_digest(one), given)]
        return found[0] if found else None


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def access_of(tokens: Mapping[str, Rights], hosts: Iterable[str]) -> Access:
    """Return the rules of a gateway with these tokens, which clients call by these names."""
    names = LOOPBACK | {name.lower() for name in hosts}
    return Access(names, dict(tokens))


# -------------------- files


def tokens_in(path: Path) -> dict[str, Rights]:
    """Return the tokens in a file that no other user can read or write, with their rights.

    Raises
    ------
    InvalidOperation
        Others can use the file, it has no token, or a line is wrong.
    """
    found: dict[str, list[Grant]] = {}
    for number, line in enumerate(_private_text(path).splitlines(), 1):
        words = line.split("#")[0].split()
        if words:
            token, grant = _parsed(words, f"token file {path}, line {number}")
            found.setdefault(token, []).append(grant)
    if not found:
        raise InvalidOperation(
            f"token file {path} has no token: write a line `TOKEN write` into it"
        )
    return {token: Rights(tuple(grants)) for token, grants in found.items()}


def _parsed(words: list[str], where: str) -> tuple[str, Grant]:
    """Return a line's token and right; its errors do not repeat a token."""
    token, *rest = words
    if not _TOKEN.fullmatch(token):
        message = "a token has letters, digits and . _ ~ + / = : - alone"
        raise InvalidOperation(f"{where}: {message}")
    if len(rest) not in (1, 2) or rest[0] not in _RIGHTS:
        raise InvalidOperation(
            f"{where}: write `TOKEN read` or `TOKEN write`, and after that the states, if not all: "
            "main,etl/*"
        )
    states = tuple(rest[1].split(",")) if len(rest) == 2 else ("*",)
    for one in states:
        if not _STATE.fullmatch(one):
            raise InvalidOperation(
                f"{where}: {one!r} is no state: give main, a branch or a tag, or the beginning of "
                "its name and *"
            )
    return token, Grant(_RIGHTS[rest[0]], states)


def _private_text(path: Path) -> str:
    """Return the text of a file that only its owner can use.

    The owner is this process's user. It may also be root, and then a group may read the file: so
    Kubernetes hands a secret to a process.
    """
    try:
        with path.open(encoding="utf-8") as file:
            status, text = os.fstat(file.fileno()), file.read()
    except OSError as error:
        raise InvalidOperation(f"token file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidOperation(f"token file {path} is no text in UTF-8") from None
    if os.name != "posix":
        return text
    user = os.geteuid()
    if status.st_uid not in (user, 0):
        raise InvalidOperation(
            f"token file {path} belongs to another user, who could change it: run `chown` on it"
        )
    is_handed = status.st_uid == 0 != user
    if stat.S_IMODE(status.st_mode) & (0o037 if is_handed else 0o077):
        raise InvalidOperation(f"token file {path} can be used by others: run `chmod 600 {path}`")
    return text
