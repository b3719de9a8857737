"""The answers of a store, and a store around another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# -------------------- base
#
# The answers of a store: tokens, conditions and the outcomes of the five verbs.


@dataclass(frozen=True, slots=True)
class Token:
    """ETag and version of an object, as the backend returned them; opaque.

    GCS matches by version, other stores by ETag; passing both back lets the
    backend choose.
    """

    e_tag: str | None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """Store only if the key does not exist."""


@dataclass(frozen=True, slots=True)
class Match:
    """Store only if the object still has this ``token``."""

    token: Token


@dataclass(frozen=True, slots=True)
class AnyVersion:
    """Store unconditionally. Only for keys that one writer owns, such as data files."""


@dataclass(frozen=True, slots=True)
class NewKey(AnyVersion):
    """Store as under ``AnyVersion``, at a key that no other client can know yet: a part of it is
    random.

    So no client reads the object while it is written, and no read is torn if the write ends
    halfway.
    """


ABSENT = Absent()
ANY = AnyVersion()
NEW = NewKey()
Condition = Absent | Match | AnyVersion


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object without its body; ``modified_seconds`` since the epoch, by the store's clock."""

    key: str
    size: int
    token: Token
    modified_seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    """A ``get`` that returned a body. ``size`` is the whole object's."""

    body: bytes
    token: Token
    size: int


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A ``get`` with a known token whose object has not changed."""


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no object at the key."""


GetOutcome = Found | Unchanged | Missing


@dataclass(frozen=True, slots=True)
class Stored:
    """The conditional write took effect.

    ``limited``: only after the store had turned it away, as it takes few writes of one object.
    """

    token: Token
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The condition did not hold; this client's body was not stored.

    ``current`` is the object that the read-back found at the key: a client that lost a race has it
    already and need not request it again. None where there was no object.
    ``limited``: the store had turned the write away, as it takes few writes of one object; the
    refusal may be the client's own, by what it has read.
    """

    current: Found | None = None
    limited: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """The write may have taken effect, or may still do so: never guess; read back, or move on."""

    reason: str


PutOutcome = Stored | Refused | Unknown


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt of a request that brought no reliable answer.

    ``ambiguous``: a write may have taken effect. ``throttled``: the store asks
    to slow down. ``conflict``: 409, another conditional write was under way.
    ``permanent``: trying again will not help (credentials, no such bucket).
    ``of_store``: it does not concern the requested object, as no request would get through.
    ``of_object``: the store takes no further write of this one object for now; reads are answered.
    ``rejected``: a catalog turned down the content of the request, whoever sends it.
    """

    reason: str
    ambiguous: bool = True
    throttled: bool = False
    conflict: bool = False
    permanent: bool = False
    of_store: bool = False
    of_object: bool = False
    rejected: bool = False


class Store(Protocol):
    """Single attempts at the six verbs. Retries and read-back are above, in the runner.

    Keys are relative to the lake's root, with ``/`` between parts, or absolute
    URIs for tables that are stored elsewhere. Implementations are thread-safe and
    never raise for an answer of the store: failures are values.
    """

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        """Read an object, or the part of ``byte_range`` that exists, as a slice would.

        ``byte_range`` is (start, end), end exclusive; with a negative start, it means the
        last ``-start`` bytes, and the end is ignored.
        """

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        """Write an object under a condition."""

    def put_file(self, key: str, path: str) -> Stored | Failure:
        """Upload a local file unconditionally, in parts where it is large."""

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        """Copy an object within the store, unconditionally; nothing is downloaded.

        No reader ever sees half of it.
        """

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        """Describe an object."""

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        """Return all objects below ``prefix`` (a directory, recursive), in no particular order.

        Those up to the key ``start_after`` are left out, and so are those after the key ``until``.
        """

    def list_names(self, prefix: str) -> tuple[str, ...] | Failure:
        """Return the names in a directory itself; the names of directories end in a slash."""

    def delete(self, key: str) -> Failure | None:
        """Delete an object; deleting an absent one succeeds."""

    def local_path(self, key: str) -> str | None:
        """Return the object's path in this machine's file system, or None."""


# -------------------- wrapped
#
# The common part of stores that wrap another one.


class WrappedStore:
    """A store that passes every request on; the base of wrappers that do more."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        return self.inner.get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        return self.inner.put(key, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        return self.inner.put_file(key, path)

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        return self.inner.copy_object(source, key)

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        return self.inner.head(key)

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        return self.inner.list(prefix, start_after, until)

    def list_names(self, prefix: str) -> tuple[str, ...] | Failure:
        return self.inner.list_names(prefix)

    def delete(self, key: str) -> Failure | None:
        return self.inner.delete(key)

    def local_path(self, key: str) -> str | None:
        return self.inner.local_path(key)
