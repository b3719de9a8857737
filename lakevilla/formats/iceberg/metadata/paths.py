"""Names in an Iceberg table: keys of its metadata, and data files as manifests spell them.

Manifests name files by whole URIs, which begin with the table's ``location``; the
library works with paths relative to the table. The same directory is spelled in several
ways (``s3a://``, ``file:/``, a bare path), so a URI is compared with all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import file_key
from lakevilla.store.location import Location, is_plain, parse_location, real_place

_METADATA = re.compile(r"v(\d{1,18})\.metadata\.json")
_COMPRESSED = re.compile(r"v(\d{1,18})(?:\.gz\.metadata\.json|\.metadata\.json\.gz)")
_JAVA_FILE = re.compile(r"file:/(?!/)")
_ALIASES = {
    "s3": ("s3", "s3a", "s3n"),
    "gs": ("gs", "gcs"),
    "az": ("abfss", "abfs", "az", "azure", "adl"),
}


def metadata_directory(location: str) -> str:
    """The directory of a table's metadata, manifests and manifest lists."""
    return f"{location}/metadata"


def metadata_key(location: str, version: int) -> str:
    """The key of a version of a table without a catalog: version 0 is ``v1.metadata.json``.

    Versions count from 0 as in Delta, while a ``hadoop`` catalog begins with 1.
    """
    return f"{location}/metadata/v{version + 1}.metadata.json"


def metadata_version(name: str) -> int | None:
    """The version that a file in the metadata directory holds; None for any other file."""
    match = _METADATA.fullmatch(name)
    return None if match is None or int(match[1]) == 0 else int(match[1]) - 1


def compressed_key(location: str, version: int) -> str:
    """The key under which another writer keeps a version that it has compressed."""
    return f"{location}/metadata/v{version + 1}.gz.metadata.json"


def compressed_version(name: str) -> int | None:
    """The version that a compressed file holds; None for any other file."""
    match = _COMPRESSED.fullmatch(name)
    return None if match is None or int(match[1]) == 0 else int(match[1]) - 1


def hint_key(location: str) -> str:
    """The key of the hint at the newest version."""
    return f"{location}/metadata/version-hint.text"


@dataclass(frozen=True)
class TableAddress:
    """Where a table is: ``location`` as the lake's keys begin, ``uri`` as its metadata says."""

    location: str
    uri: str

    def path(self, uri: str) -> str:
        """A file's path: relative to the table where it lies in its directory, else absolute.

        One that is spelled as no key can be (``t//a``, ``t/./a``) is left as it is: in an object
        store it may be another object.
        """
        for prefix in self._prefixes:
            if uri.startswith(prefix) and is_plain(path := uri[len(prefix) :]):
                return path
        return _JAVA_FILE.sub("file:///", uri)

    def spelled(self, path: str) -> str:
        """A path as manifests and metadata spell it."""
        return file_key(self.uri, path)

    def key(self, path: str) -> str:
        """The key of an object in the store."""
        return file_key(self.location, path)

    @cached_property
    def _prefixes(self) -> tuple[str, ...]:
        place = place_of(self.uri)
        if place.scheme == "file":
            return tuple(f"{start}{place.path}/" for start in ("file:///", "/", "file:/"))
        _, _, rest = self.uri.partition("://")
        schemes = _ALIASES.get(place.scheme, (place.scheme,))
        return tuple(f"{scheme}://{rest}/" for scheme in schemes)


def place_of(uri: str) -> Location:
    """The place that a URI in metadata names. Raises ``InvalidOperation``."""
    return parse_location(_JAVA_FILE.sub("file:///", uri))


def is_same_place(one: str, other: str) -> bool:
    """Whether two URIs name one directory: a local one also by the links that lead to it."""
    try:
        return real_place(place_of(one)) == real_place(place_of(other))
    except InvalidOperation:
        return False
