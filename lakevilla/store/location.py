"""Locations of objects: keys, URIs, and the homes of branches."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import stat
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError
from lakevilla.settings import is_unicode
from lakevilla.store.base import ObjectInfo
from lakevilla.store.effects import (
    Await,
    Effect,
    List,
    ListNames,
    Parallel,
    Program,
    Sleep,
    exchanged,
)

# -------------------- location
#
# Locations: one spelling for each place.
#
# A key is relative to the lake's root (``orders/_delta_log/...``) or absolute
# (``s3://other/orders/...``, ``/data/orders/...``). Keys are literal: a ``%`` in
# one is a ``%`` in the object's name, so that location and path join by ``/``.


#: The scheme of keys that a catalog answers.
CATALOG = "catalog"
_IN_CATALOG = f"{CATALOG}://"
#: The directory, below a lake's root, in which ``probe`` tests a store.
PROBES_PREFIX = "_lakevilla/probe/"


_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "adl": "az",
    "abfs": "az",
    "abfss": "az",
    "wasb": "az",
    "wasbs": "az",
    "file": "file",
    "memory": "memory",
}

#: The seconds between two writes of one object that a provider takes; it answers 429 to more.
#: https://cloud.google.com/storage/quotas#objects
_SECONDS_BETWEEN_WRITES = {"gs": 1.0}

#: Schemes of file systems that some platforms write with one slash.
_FOREIGN_SCHEMES = frozenset({"dbfs", "hdfs", "viewfs", "http", "https"})

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Location:
    """A directory: scheme, authority (bucket, or ``container@account`` on Azure), path.

    ``path`` has no leading or trailing slash and no empty part. An account of another cloud than
    Azure's public one, or of a DNS zone, is followed by the rest of its host.
    """

    scheme: str
    authority: str
    path: str

    @property
    def uri(self) -> str:
        """The one spelling of this place, for messages and for other readers."""
        if self.scheme == "file":
            return "/" + self.path
        base = f"{self.scheme}://{self.authority}"
        if "@" in self.authority:
            base = f"abfss://{self.authority}"
            if "." not in self.authority:
                base += _PUBLIC_CLOUD
        return f"{base}/{self.path}" if self.path else base

    @property
    def store(self) -> Location:
        """The bucket, container or file system that holds the place."""
        return Location(self.scheme, self.authority, "")


def seconds_between_writes(scheme: str) -> float:
    """Return the time between two writes of one object that the store takes, mostly none."""
    return _SECONDS_BETWEEN_WRITES.get(scheme, 0.0)


def is_external(location: str) -> bool:
    """Return whether a location, or a caller's text, is an address and no path under the root."""
    return "://" in location or location.startswith("/")


def parse_location(text: str) -> Location:
    """Return the place that an absolute path or a URI names.

    Raises
    ------
    InvalidOperation
        The scheme is unknown, there is no bucket, or the path has ``..`` in it.
    """
    match = _URI.fullmatch(text)
    if match is None:
        return Location("file", "", _clean(text, text))
    if match[1].lower() == "https" and (account := account_at(match[2])) is not None:
        return _https_location(text, account, match[3])
    scheme = _SCHEMES.get(match[1].lower())
    if scheme is None:
        raise InvalidOperation(
            f"location {_without_secrets(text)!r} has the unknown scheme {match[1]!r}; "
            f"use one of s3, gs, az, abfss, file, memory or a local path"
        )
    authority, path = match[2], match[3]
    if scheme == "az":
        _refuse_token(text)
    if scheme == "file":
        if authority not in ("", "localhost"):
            raise InvalidOperation(
                f"location {_without_secrets(text)!r} names the host "
                f"{authority.rpartition('@')[2]!r}; write file:///path with three slashes"
            )
        authority = ""
    elif scheme == "az":
        authority = _azure_authority(text, authority)
    elif scheme in ("s3", "gs") and "@" in authority:
        # Nothing before the @ is repeated: it may be a secret.
        raise InvalidOperation(
            f"a {scheme} location must not carry credentials; pass them in storage_options"
        )
    elif scheme in ("s3", "gs") and _SIGNED.search(text):
        raise InvalidOperation(
            f"location {text.partition('?')[0]!r} is followed by a signature: a signed URL opens "
            "one object, and a lake has many; leave it out, and pass credentials in storage_options"
        )
    if not authority and scheme not in ("file", "memory"):
        place = "container" if scheme == "az" else "bucket"
        raise InvalidOperation(f"location {text!r} names no {place}; write {scheme}://{place}/path")
    return Location(scheme, authority, _clean(path, text))


def normalise_location(root: str, name_or_uri: str) -> str:
    """Return a table's one location in the lake at ``root``: the beginning of its keys.

    It is relative to the root for a table under it, in any spelling
    (``orders``, ``orders/``, ``s3a://lake//orders``, ``file:///lake/orders``, a link to it),
    else an absolute URI or path. A result that is passed in again is returned unchanged.

    Raises
    ------
    InvalidOperation
        The name is empty, is or contains the root, has ``..`` in it, or spells an
        Azure account where the root does not (or the other way round).
    """
    base = root_location(root)
    if "://" not in name_or_uri and not name_or_uri.startswith("/"):
        path = _clean(name_or_uri, name_or_uri)
        if not path:
            raise InvalidOperation(f"table name {name_or_uri!r} is empty; name a path below {root}")
        if base.scheme != "file":
            return path
        given = _below(base, path)
    elif (given := in_account(parse_location(name_or_uri), account_of(base))).scheme == "file":
        _refuse_dots(given.path, name_or_uri)
        given = _local(unquote(given.path) if "://" in name_or_uri else given.path)
    if given.store != base.store:
        if _may_be_one_container(given, base):
            raise InvalidOperation(
                f"location {name_or_uri!r} and the lake's root {base.uri!r} name one container in "
                f"two ways; write both with the account or both without"
            )
        return given.uri
    if given.path == base.path:
        raise InvalidOperation(
            f"location {name_or_uri!r} is the lake's root; name a table below it"
        )
    if base.path.startswith(given.path + "/" if given.path else ""):
        # The root's directory as a table would contain the lake: VACUUM or a drop would delete all
        # of it.
        raise InvalidOperation(
            f"location {name_or_uri!r} contains the lake at {base.uri!r}; name a table below it "
            "or next to it"
        )
    below = base.path + "/" if base.path else ""
    return given.path[len(below) :] if given.path.startswith(below) else given.uri


def root_location(root: str) -> Location:
    """Return the place of a lake's root; a local path may be relative, or contain ``..`` or ``~``.

    Links are resolved, because a place reached by two paths is one place.
    """
    if "://" not in root:
        return _local(os.path.abspath(os.path.expanduser(root)))
    location = parse_location(root)
    return _local(unquote(location.path)) if location.scheme == "file" else location


def table_around(root: str) -> str | None:
    """Return the table that a local root is, or is inside of, or None: reads the local disk."""
    location = root_location(root)
    if location.scheme != "file":
        return None
    path = f"/{location.path}"
    while path != "/":
        metadata = glob.iglob(f"{glob.escape(path)}/metadata/*.metadata.json")
        if os.path.isdir(f"{path}/_delta_log") or next(metadata, None) is not None:
            return path
        path = os.path.dirname(path)
    return None


def refuse_connection_string(text: str) -> None:
    """Refuse a root that is a connection string, which would be a directory with a secret's name.

    Raises
    ------
    InvalidOperation
    """
    if _CONNECTION.search(text):
        raise InvalidOperation(
            "the root is a connection string, with its secret: give the URI of the place, such as "
            "abfss://container@account.dfs.core.windows.net/path, and pass what the string holds "
            "in storage_options"
        )


def refuse_half_scheme(text: str) -> None:
    """Refuse ``s3:/bucket/path``, which would be a directory ``s3:`` here.

    Raises
    ------
    InvalidOperation
    """
    scheme, colon, path = text.partition(":")
    if colon and scheme.lower() in _FOREIGN_SCHEMES and not path.startswith("//"):
        raise InvalidOperation(
            f"location {_without_secrets(text)!r} is no directory here: give the URI of the object "
            "store, such as s3://bucket/path, or the path where it is mounted"
        )
    if colon and scheme.lower() in _SCHEMES and not path.startswith("//"):
        raise InvalidOperation(
            f"location {_without_secrets(text)!r} is half a URI: write "
            f"{_without_secrets(f'{scheme}://' + path.lstrip('/'))}, with two "
            "slashes, and a third where no host is named"
        )


def is_in_catalog(key: str) -> bool:
    """Return whether a key is a table's pointer in a catalog, not an object of a store."""
    return key.startswith(_IN_CATALOG)


def catalog_of(key: str) -> str:
    """Return the name of the catalog that has a table's pointer."""
    return unquote(key.removeprefix(_IN_CATALOG).partition("/")[0])


def is_plain(key: str) -> bool:
    """Return whether no part of a key is empty, ``.`` or ``..``."""
    parts = key.split("/")
    return not ("" in parts or "." in parts or ".." in parts)


def check_key(key: str) -> str:
    """Refuse a key that could leave its directory or name two things.

    Raises
    ------
    InvalidOperation
        A part of the key is empty, ``.`` or ``..``, or has a control character.
    """
    if not is_plain(key) or _CONTROL.search(key):
        raise InvalidOperation(
            f"key {key!r} is not a plain path; leave out empty, '.' and '..' parts "
            f"and control characters"
        )
    return key


_USER = re.compile(r"^(https?:/*(?=[^/]*@)|[a-z][a-z0-9+.-]*:/*(?=[^/]*:[^/]*@))[^/]*@", re.I)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _local(path: str) -> Location:
    try:
        real = os.path.realpath("/" + path.lstrip("/"))
    except OSError as error:
        raise StoreError(f"/{path.lstrip('/')} can't be read: {error.strerror}") from None
    return Location("file", "", real.strip("/"))


def _below(base: Location, path: str) -> Location:
    """Return a place below one whose links were followed, without following those again."""
    whole = f"{base.path}/{path}".strip("/")
    place = f"/{base.path}".rstrip("/")
    for part in path.split("/"):
        place += f"/{part}"
        try:
            mode = os.lstat(place).st_mode
        except OSError:
            break  # the path is missing, or may not be seen: then no link below it is seen either
        if stat.S_ISLNK(mode):
            return _local(whole)
    return Location("file", "", whole)


def real_place(place: Location) -> Location:
    """Return a place with its links followed, if it is on this machine."""
    return _local(place.path) if place.scheme == "file" else place


def _clean(path: str, given: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    _refuse_dots("/".join(parts), given)
    if _CONTROL.search(path):
        raise InvalidOperation(f"location {given!r} has a control character; rename it")
    if not is_unicode(path):
        raise InvalidOperation(f"location {given!r} has half of a surrogate pair; rename it")
    return "/".join(parts)


def _without_secrets(uri: str) -> str:
    """Return a URI for messages, without what may be a password or a token."""
    return _USER.sub(r"\1", re.split("[?#]", uri, maxsplit=1)[0])


def _refuse_dots(path: str, given: str) -> None:
    if ".." in unquote(path).split("/"):
        raise InvalidOperation(f"location {given!r} has '..' in it; write the path without it")


def _may_be_one_container(one: Location, other: Location) -> bool:
    a, b = one.authority.partition("@"), other.authority.partition("@")
    return one.scheme == other.scheme == "az" and a[0] == b[0] and (not a[2] or not b[2])


# -------------------- azure
#
# Containers of Azure: one spelling for each, with its account where that is known.
#
# ``az://container``, ``abfss://container@account.dfs.core.windows.net``, the same with ``blob``,
# and ``https://account.blob.core.windows.net/container`` are one container.


_PUBLIC_CLOUD = ".dfs.core.windows.net"
_AZURE_HOST = re.compile(
    r"(?P<account>[^.@/]+)(?P<zone>\.z\d+)?(?:\.privatelink)?\.(?:dfs|blob)\."
    r"(?P<cloud>core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)|storage\.azure\.net)"
)
#: https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
_CONTAINER = re.compile(r"\$?[a-z0-9-]+")
#: The signature of a token (SAS) behind a location.
_TOKEN = re.compile(r"\?(?:.*&)?sig=", re.DOTALL)
#: The signature of a signed URL of S3 or Google, or a token, behind a location.
_SIGNED = re.compile(
    r"\?(?:.*&)?(?:(?:x-(?:amz|goog)-)?(?:signature|credential|security-token)|sig"
    r"|awsaccesskeyid|googleaccessid|(?:access_)?token)=",
    re.DOTALL | re.IGNORECASE,
)
#: The part of a connection string, of Azure or of a database, that is a secret.
_CONNECTION = re.compile(r"(?:^|;)\s*(?:AccountKey|SharedAccessSignature|password|pwd)\s*=", re.I)
_ONELAKE = re.compile(r"(?:^|\.)fabric\.microsoft\.com$")


def account_at(host: str) -> str | None:
    """Return the account whose host this is, as locations name it; None for any other host.

    Raises
    ------
    InvalidOperation
        The host is OneLake's.
    """
    name = host.lower().partition(":")[0]
    if _ONELAKE.search(name):
        raise InvalidOperation(
            f"{name} is OneLake, on which LakeVilla does not run, as its conditional writes were "
            "never tried: keep the lake in a storage account, and show it in OneLake by a shortcut"
        )
    match = _AZURE_HOST.fullmatch(name)
    if match is None:
        return None
    whole = f"{match['account']}{match['zone'] or ''}.dfs.{match['cloud']}"
    return whole.removesuffix(_PUBLIC_CLOUD)


def account_of(place: Location) -> str | None:
    """Return the account that a location on Azure names; None if it names none."""
    return place.authority.partition("@")[2] or None if place.scheme == "az" else None


def in_account(place: Location, account: str | None) -> Location:
    """Return a location on Azure with its account, which is the given one if it names none."""
    if account is None or place.scheme != "az" or "@" in place.authority:
        return place
    return dataclasses.replace(place, authority=f"{place.authority}@{account}")


def endpoint_of(account: str) -> str:
    """Return the URL at which an account's blobs are, unless an option names another."""
    host = account if "." in account else f"{account}{_PUBLIC_CLOUD}"
    return f"https://{host.replace('.dfs.', '.blob.')}"


def azure_authorities(place: Location) -> list[str]:
    """Return the authorities by which the URIs of other writers name a container of Azure."""
    container, _, account = place.authority.partition("@")
    if not account:
        return [container]
    blobs = endpoint_of(account).removeprefix("https://")
    return [container, f"{container}@{blobs}", f"{container}@{blobs.replace('.blob.', '.dfs.')}"]


def _azure_authority(text: str, authority: str) -> str:
    container, at, host = authority.rpartition("@") if "@" in authority else (authority, "", "")
    if at and (":" in container or "@" in container):
        # Nothing before the @ is repeated: it may be a secret.
        raise InvalidOperation(
            "a location on Azure must not carry credentials; pass them in storage_options"
        )
    account = account_at(host if at else container)
    if ("." in container and not at) or (at and account is None):
        raise InvalidOperation(
            f"location {text.partition('?')[0]!r} is not of the form "
            "abfss://container@account.dfs.core.windows.net/path: correct it; if the account has "
            "another host, write az://container/path, and AZURE_STORAGE_ENDPOINT in storage_options"
        )
    if container:
        _check_container(container)
    return f"{container}@{account}" if at else container


def _check_container(container: str) -> None:
    if not _CONTAINER.fullmatch(container):
        raise InvalidOperation(
            f"the container can't have the name {container!r}, as Azure's have lower-case letters, "
            "digits and hyphens: correct it, and write / between the container and the path"
        )


def _https_location(text: str, account: str, path: str) -> Location:
    if "?" in path:
        raise _followed_by_token(text)
    container, _, rest = path.lstrip("/").partition("/")
    if not container:
        place = text.rstrip("/")
        raise InvalidOperation(
            f"location {text!r} names no container; write {place}/container/path"
        )
    _check_container(container)
    # A URL for browsers, unlike the other spellings: Azure's portal writes a space as %20.
    try:
        rest = unquote(rest, errors="strict")
    except UnicodeDecodeError:
        raise InvalidOperation(
            f"location {text!r} has a % that is followed by no character of UTF-8: write the URL "
            "as Azure's portal shows it, or abfss://container@account.dfs.core.windows.net/path"
        ) from None
    return Location("az", f"{container}@{account}", _clean(rest, text))


def _refuse_token(text: str) -> None:
    if _TOKEN.search(text):
        raise _followed_by_token(text)


def _followed_by_token(text: str) -> InvalidOperation:
    return InvalidOperation(
        f"location {text.partition('?')[0]!r} is followed by a token: leave it out of the "
        "location, and pass it as AZURE_STORAGE_SAS_TOKEN in storage_options"
    )


# -------------------- home
#
# Homes: a branch's own objects have the lake's own names, and are stored at another place.
#
# A branch is a lake in a subdirectory (docs/design/0031-branches.md). Programs know one set of
# names, ``_lakevilla/HEAD.json`` and so on; ``at_home`` runs a program with these names moved to
# the branch's directory. Bases, leaves and commit objects are known beyond the branch: objects
# that name them also give their place, and their names stay unchanged.


T = TypeVar("T")

HOMES_PREFIX = "_lakevilla/branches"

#: Objects that a branch has of its own. Engines read the sources of merges, and know no homes.
_OWN = re.compile(r"_lakevilla/(?:HEAD\.json|(?:heads|pages|txns|keys)(?!/[^/]+/source-)(?:/.*)?)")


def home_of(epoch: str) -> str:
    """Return the directory of a branch epoch (``epoch``); the lake's own for ``""``."""
    return f"{HOMES_PREFIX}/{epoch}" if epoch else "_lakevilla"


def key_at(epoch: str, key: str) -> str:
    """Return the key, for a branch epoch, of the object that programs call ``key``."""
    if not epoch or _OWN.fullmatch(key) is None:
        return key
    return f"{home_of(epoch)}/{key.removeprefix('_lakevilla/')}"


def at_home(epoch: str, program: Program[T]) -> Program[T]:
    """Return a program as it runs at another home; unchanged for ``""``."""
    return program if not epoch else _at_home(epoch, program)


def _at_home(epoch: str, program: Program[T]) -> Program[T]:
    def named(effect: Effect, answer: Any) -> Any:
        return [_named(epoch, info) for info in answer] if isinstance(effect, List) else answer

    try:
        return (yield from exchanged(program, partial(_moved, epoch), named))
    except LakeVillaError as failed:
        _name_its_place(epoch, failed)
        raise


def _moved(epoch: str, effect: Effect) -> Effect:
    match effect:
        case Sleep() | Await():
            return effect
        case Parallel(parts):
            return Parallel(
                tuple(
                    _at_home(epoch, part if isinstance(part, Generator) else _one(part))
                    for part in parts
                )
            )
        case List(prefix, start_after, until):
            after, last = (
                None if key is None else key_at(epoch, key) for key in (start_after, until)
            )
            return List(key_at(epoch, prefix), after, last)
        case ListNames(prefix):
            return ListNames(key_at(epoch, prefix))
    return dataclasses.replace(effect, key=key_at(epoch, effect.key))


def _name_its_place(epoch: str, error: LakeVillaError) -> None:
    """Name, in an error about an object of the branch, the place where the object is stored."""
    key = getattr(error, "key", None)
    if isinstance(key, str) and key_at(epoch, key) != key:
        error.message = error.message.replace(key, key_at(epoch, key))
        error.args = (error.message,)
        error.key = key_at(epoch, key)  # type: ignore[attr-defined]


def _one(effect: Effect) -> Program[Any]:
    return (yield effect)


def _named(epoch: str, info: ObjectInfo) -> ObjectInfo:
    """Return an object's description under the name by which programs know the object."""
    home = home_of(epoch)
    if not info.key.startswith(f"{home}/"):
        return info
    return dataclasses.replace(info, key=f"_lakevilla/{info.key.removeprefix(home + '/')}")
