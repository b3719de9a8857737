"""Objects with generations, in memory, and the answers to requests for them."""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
import time
from collections import Counter
from dataclasses import dataclass, field


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.status = status
        self.code = code
        self.message = message or code


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The body, the number of the write that stored it, and the time of that."""

    body: bytes
    generation: int
    modified_seconds: float

    @property
    def e_tag(self) -> str:
        return f'"{hashlib.md5(self.body).hexdigest()}"'


@dataclass(frozen=True, slots=True)
class Page:
    """Objects and directories of a list, and the token of the next page."""

    objects: dict[str, StoredObject]
    directories: list[str]
    next_token: str | None


@dataclass(slots=True)
class _Upload:
    place: tuple[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


class Objects:
    """The objects of all buckets; each method is one request, and takes effect at once or not.

    Parameters
    ----------
    seconds_between_writes : float
        The time between two writes or deletes of one object; who comes sooner is answered 429,
        whatever the condition.
    """

    def __init__(self, seconds_between_writes: float = 0.0) -> None:
        self._seconds_between_writes = seconds_between_writes
        self._objects: dict[tuple[str, str], StoredObject] = {}
        self._changed: dict[tuple[str, str], float] = {}
        self._uploads: dict[str, _Upload] = {}
        self._generations = itertools.count(time.time_ns() // 1000)
        self._lock = threading.Lock()
        #: How many requests came too soon, by method.
        self.turned_away: Counter[str] = Counter()

    def read(self, bucket: str, key: str) -> StoredObject:
        found = self._objects.get((bucket, key))
        if found is None:
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
        return found

    def write(
        self, bucket: str, key: str, body: bytes, if_generation: int | None = None
    ) -> StoredObject:
        """Store an object, if the present one has this generation (0: if there is none)."""
        with self._lock:
            self._check_limit("PUT", bucket, key)
            present = self._objects.get((bucket, key))
            generation = 0 if present is None else present.generation
            if if_generation is not None and if_generation != generation:
                raise Refusal(412, "PreconditionFailed", "A precondition you specified failed.")
            return self._store(bucket, key, body)

    def copy(self, source: tuple[str, str], bucket: str, key: str) -> StoredObject:
        with self._lock:
            self._check_limit("PUT", bucket, key)
            return self._store(bucket, key, self.read(*source).body)

    def delete(self, bucket: str, key: str) -> None:
        with self._lock:
            self.read(bucket, key)
            self._check_limit("DELETE", bucket, key)
            del self._objects[bucket, key]
            self._changed[bucket, key] = time.monotonic()

    def begin_upload(self, bucket: str, key: str) -> str:
        name = f"upload-{next(self._generations)}"
        self._uploads[name] = _Upload((bucket, key))
        return name

    def add_part(self, upload: str, number: int, body: bytes) -> str:
        self._upload(upload).parts[number] = body
        return f'"{hashlib.md5(body).hexdigest()}"'

    def complete_upload(self, upload: str) -> StoredObject:
        with self._lock:
            found = self._upload(upload)
            self._check_limit("POST", *found.place)
            del self._uploads[upload]
            body = b"".join(found.parts[number] for number in sorted(found.parts))
            return self._store(*found.place, body)

    def end_upload(self, upload: str) -> None:
        self._uploads.pop(upload, None)

    def page(self, bucket: str, prefix: str, delimiter: str, after: str, most: int) -> Page:
        """List what comes after ``after``, a key or a directory of an earlier page."""
        with self._lock:
            keys = sorted(
                key for own, key in self._objects if own == bucket and key.startswith(prefix)
            )
            objects: dict[str, StoredObject] = {}
            directories: list[str] = []
            last = None
            for key in keys:
                rest = key[len(prefix) :]
                is_below = bool(delimiter) and delimiter in rest
                name = prefix + rest.partition(delimiter)[0] + delimiter if is_below else key
                if name <= after or name == last:
                    continue
                if len(objects) + len(directories) == most:
                    return Page(objects, directories, last)
                if is_below:
                    directories.append(name)
                else:
                    objects[key] = self._objects[bucket, key]
                last = name
            return Page(objects, directories, None)

    def _upload(self, name: str) -> _Upload:
        if name not in self._uploads:
            raise Refusal(404, "NoSuchUpload")
        return self._uploads[name]

    def _check_limit(self, method: str, bucket: str, key: str) -> None:
        since = time.monotonic() - self._changed.get((bucket, key), -math.inf)
        if since < self._seconds_between_writes:
            self.turned_away[method] += 1
            raise Refusal(
                429,
                "SlowDown",
                "The object exceeded the rate limit for object mutation operations (create, "
                "update, and delete). Please reduce your request rate.",
            )

    def _store(self, bucket: str, key: str, body: bytes) -> StoredObject:
        stored = StoredObject(body, next(self._generations), time.time())
        self._objects[bucket, key] = stored
        self._changed[bucket, key] = time.monotonic()
        return stored
