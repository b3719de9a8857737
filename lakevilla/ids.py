"""Transaction ids, nonces and file names, from injected time and randomness."""

from __future__ import annotations

import re
import secrets
import uuid
from typing import Protocol

from blake3 import blake3

from lakevilla.clock import Clock

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

#: The smallest id: below every UUIDv7.
NO_TXN = "00000000-0000-0000-0000-000000000000"


#: The number of bits of an id that mark the HEAD through which its transaction commits.
_MARK = 23


class RandomSource(Protocol):
    """The interface to a random generator."""

    def getrandbits(self, k: int, /) -> int: ...

    def random(self) -> float: ...


class Ids:
    """A generator of ids, one for each process or simulated client.

    Parameters
    ----------
    clock : Clock
        Provides the milliseconds of a UUIDv7.
    source : RandomSource, optional
        By default, the system's secure generator.
    """

    def __init__(self, clock: Clock, source: RandomSource | None = None) -> None:
        self._clock = clock
        self._random: RandomSource = source or secrets.SystemRandom()

    def txn_id(self, above: str = NO_TXN, *, by_entry: bool = False, branch: str = "") -> str:
        """Return a UUIDv7 in canonical form; a smaller id is an older transaction.

        ``by_entry`` sets the last bit, which marks a transaction that may commit by its table's own
        log entry: HEAD alone can't show how such a transaction ended. ``branch``, the id of a
        branch or ``""`` for the lake itself, sets the 23 bits before it, which mark the HEAD that
        shows how the transaction ended.

        The id is larger than ``above`` (HEAD's floor), even if this machine's clock is slow: a
        transaction with an id below the floor could never commit.
        """
        milliseconds = int(self._clock.now() * 1000)
        floor_milliseconds = int(above.replace("-", "")[:12], 16)
        bits = self._random.getrandbits(73) >> _MARK << _MARK | mark_of(branch)
        bits = bits << 1 | by_entry
        return uuid7(max(milliseconds, floor_milliseconds + 1), bits)

    def nonce(self) -> str:
        """Return 32 random hex digits, which no other write will ever have."""
        return f"{self._random.getrandbits(128):032x}"

    def uuid(self) -> str:
        """Return a random UUID (version 4)."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def jitter(self) -> float:
        """Return a random number in [0, 1), for the pause before a retry."""
        return self._random.random()


def uuid7(milliseconds: int, random_bits: int) -> str:
    """Make a UUIDv7 (RFC 9562, section 5.7) from 48 bits of time and 74 random bits."""
    high, low = random_bits >> 62, random_bits & ((1 << 62) - 1)
    value = (milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | (high & 0xFFF) << 64
    return str(uuid.UUID(int=value | 0b10 << 62 | low))


def uuid_of(digest: bytes) -> str:
    """Return a UUID, in the form of version 4, from 16 bytes; equal bytes give equal UUIDs."""
    return str(uuid.UUID(bytes=digest, version=4))


def is_txn_id(text: str) -> bool:
    """Return whether ``text`` is a transaction id in canonical form."""
    return _UUID7.fullmatch(text) is not None


def txn_in(name: str) -> str | None:
    """Return the transaction id that a file's name contains; None if it contains none.

    The name of a file of Delta's vectors has no room for an id: its directory has it.
    """
    directory, _, last = name.rpartition("/")
    if last.startswith("deletion_vector_"):
        last = directory.rpartition("/")[2]
    found = _UUID7.search(last)
    return None if found is None else found[0]


def is_by_entry(txn_id: str) -> bool:
    """Return whether a transaction may have committed by its table's own log entry."""
    return bool(int(txn_id[-1], 16) & 1)


def mark_of(branch: str) -> int:
    """Return the mark of a branch in the ids of its transactions; 0 for the lake itself."""
    if not branch:
        return 0
    digest = blake3(branch.encode()).hexdigest(length=4)
    return int(digest, 16) % ((1 << _MARK) - 1) + 1


def mark_in(txn_id: str) -> int:
    """Return the mark of the branch on which a transaction began; see ``mark_of``."""
    return int(txn_id[-6:], 16) >> 1


def started_at(txn_id: str) -> float:
    """Return the time in an id, in seconds since the epoch, by the clock of the client that made
    it.
    """
    return int(txn_id.replace("-", "")[:12], 16) / 1000
