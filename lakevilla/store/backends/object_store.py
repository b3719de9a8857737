"""A store that obstore reaches."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from obstore import open_writer
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    PreconditionError,
    UnknownConfigurationKeyError,
)
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from lakevilla.errors import InvalidOperation
from lakevilla.forked import lock
from lakevilla.settings import Settings, shown
from lakevilla.store.backends.endpoints import (
    DELTALAKE_ONLY,
    PREFIXES,
    UNSAFE_WRITERS,
    advice_for,
    azure_account,
    check_endpoints,
    endpoint_options,
    of_account,
    shown_endpoint,
)
from lakevilla.store.backends.failures import (
    PanicError,
    classify_failure,
    error_code,
    ignores_ranges,
    is_beyond_the_end,
    is_missing_bucket,
    is_panic,
    is_the_whole,
    status_code,
)
from lakevilla.store.backends.local import LocalStore
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.backends.sessions import boto3_credentials, session_of
from lakevilla.store.base import (
    Absent,
    AnyVersion,
    Condition,
    Failure,
    Found,
    GetOutcome,
    Match,
    Missing,
    ObjectInfo,
    Refused,
    Store,
    Stored,
    Token,
    Unchanged,
)
from lakevilla.store.location import Location, check_key, in_account, root_location
from lakevilla.store.redaction import without

# -------------------- object store
#
# Backends for S3, Google Cloud Storage, Azure and memory. The only module that knows obstore.
#
# The backend's own retries are off: they would hide a lost acknowledgement behind a
# refusal by the client's own write, and only the read-back (``readback.py``) can distinguish them.
# The backend's errors are turned into values here, by HTTP status and error code alone:
# their messages hold URLs and bodies, which may hold secrets.


_T = TypeVar("_T")

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta, PutMode, PutResult

_log = logging.getLogger("lakevilla")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The requests of a provider's interface; for those that it lacks, a backend sends others.

    Attributes
    ----------
    suffix_ranges : bool
        The last bytes can be requested without the size.
    copied_bytes : float
        The size up to which the store copies an object itself, and the copy is whole once the
        store has answered. Larger objects are fetched and stored part by part.
    quoted_in_lists : bool
        A LIST returns ETags with their quotes, as all other requests do.
    literal_names : bool
        The store keeps each name as it is given.
    """

    suffix_ranges: bool = True
    copied_bytes: float = math.inf
    quoted_in_lists: bool = True
    literal_names: bool = True


#: By provider, where its interface differs from that of the others.
CAPABILITIES = {
    "s3": Capabilities(copied_bytes=5 * 1024**3),
    "gs": Capabilities(),
    # Azure may answer a copy when it has begun, with an empty object in its place, and the client
    # does not tell. https://learn.microsoft.com/rest/api/storageservices/copy-blob
    "az": Capabilities(
        suffix_ranges=False, copied_bytes=0, quoted_in_lists=False, literal_names=False
    ),
}

#: Larger bodies without a condition are uploaded in parts.
_MULTIPART_BYTES = 32 * 1024 * 1024
_PART_BYTES = 8 * 1024 * 1024


def open_store(
    root: str,
    storage_options: Mapping[str, object] | None = None,
    *,
    boto3_session: object | None = None,
    settings: Settings | None = None,
) -> LakeStore:
    """Open the store of a lake.

    Parameters
    ----------
    root : str
        ``s3://``, ``gs://``, ``az://``, ``abfss://``, ``file://``, a local path,
        or ``memory://`` (a new one each time; ``memory://name`` is shared within the process).
    storage_options : Mapping, optional
        The keys that deltalake accepts, in any case (``AWS_ENDPOINT_URL``,
        ``aws_region``, ``azure_storage_account_name``, ``timeout`` ...). They serve
        tables in other buckets too, so keys of another provider are kept for those.
    boto3_session : boto3.Session, optional
        Gives and renews the credentials for S3.
    settings : Settings, optional
        The time limit of one request.

    Raises
    ------
    InvalidOperation
        The location or an option is not understood.
    """
    settings = settings or Settings()
    options = _Options(storage_options or {}, boto3_session, settings)
    account = azure_account(storage_options)
    location = in_account(root_location(root), account)
    store = LakeStore(location, options.open_backend, settings.stores, account)
    endpoint = options.endpoint(location.scheme)
    if endpoint is not None:
        store.place = f"{location.uri} at {endpoint}"
    return store


class ObstoreBackend:
    """Single attempts against one bucket or container.

    Parameters
    ----------
    store : S3Store, GCSStore, AzureStore or MemoryStore
    capabilities : Capabilities, optional
        Default: what the provider's interface has.
    """

    def __init__(
        self,
        store: S3Store | GCSStore | AzureStore | MemoryStore,
        *,
        capabilities: Capabilities | None = None,
    ) -> None:
        self._store = store
        self._remote = not isinstance(store, MemoryStore)
        self._provider = _PROVIDER_OF.get(type(store), "s3")
        known = Capabilities() if not self._remote else CAPABILITIES[self._provider]
        self.capabilities = capabilities or known

    def local_path(self, key: str) -> str | None:
        return None

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        options: GetOptions = {}
        if known is not None and known.e_tag is not None:
            options["if_none_match"] = known.e_tag
        if byte_range is not None:
            start, end = byte_range
            if start >= 0 and end <= start:
                return self._nothing_of(key)
            if start < 0 and not self.capabilities.suffix_ranges:
                return self._last_bytes(key, -start, known)
            options["range"] = (start, end) if start >= 0 else {"suffix": -start}

        outcome = self._attempt(lambda: self._fetched(key, options))
        if isinstance(outcome, BaseException):
            if isinstance(outcome, NotModifiedError):
                return Unchanged()
            if _is_missing_object(outcome):
                return Missing()
            if byte_range is not None and is_beyond_the_end(str(outcome)):
                return self._nothing_of(key)
            if byte_range is not None and is_the_whole(str(outcome)):
                whole = self._nothing_of(key)
                # The requested range covers all of an empty object.
                return ignores_ranges() if isinstance(whole, Found) and whole.size else whole
            return self._failure(outcome, reading=True)
        return outcome

    def _nothing_of(self, key: str) -> GetOutcome | Failure:
        """Return the answer to a request for a range beyond the object's bytes."""
        info = self.head(key)
        return Found(b"", info.token, info.size) if isinstance(info, ObjectInfo) else info

    def _fetched(self, key: str, options: GetOptions) -> Found:
        result = self._store.get(self._key(key), options=options)
        return Found(bytes(result.bytes()), self._token(result.meta), result.meta["size"])

    def _last_bytes(self, key: str, count: int, known: Token | None) -> GetOutcome | Failure:
        """Read the last bytes by an absolute range, of the very object whose size was read."""
        info = self.head(key)
        if not isinstance(info, ObjectInfo):
            return info
        token = info.token
        if known is not None and known.e_tag is not None and known.e_tag == token.e_tag:
            return Unchanged()
        if info.size == 0:
            return Found(b"", token, 0)
        options: GetOptions = {"range": (max(0, info.size - count), info.size)}
        if token.e_tag is not None:
            options["if_match"] = token.e_tag

        outcome = self._attempt(lambda: self._fetched(key, options))
        if not isinstance(outcome, BaseException):
            return outcome
        if _is_missing_object(outcome):
            return Missing()
        if isinstance(outcome, PreconditionError):
            return Failure("it was replaced while its end was read", ambiguous=False)
        return self._failure(outcome, reading=True)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        mode: PutMode
        match condition:
            case Absent():
                mode = "create"
            case Match(token):
                mode = {}
                if token.e_tag is not None:
                    mode["e_tag"] = token.e_tag
                if token.version is not None:
                    mode["version"] = token.version
            case AnyVersion():
                mode = "overwrite"
        in_parts = mode == "overwrite" and len(body) > _MULTIPART_BYTES
        outcome = self._attempt(
            lambda: self._store.put(
                self._new_key(key), body, mode=mode, use_multipart=in_parts, chunk_size=_PART_BYTES
            )
        )
        if isinstance(outcome, BaseException):
            if not isinstance(condition, AnyVersion) and _is_refusal(outcome):
                return Refused()
            return self._failure(outcome)
        return Stored(self._token(outcome))

    def put_file(self, key: str, path: str) -> Stored | Failure:
        outcome = self._attempt(
            lambda: self._store.put(self._new_key(key), Path(path), chunk_size=_PART_BYTES)
        )
        return (
            self._failure(outcome)
            if isinstance(outcome, BaseException)
            else Stored(self._token(outcome))
        )

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        if self.capabilities.copied_bytes == 0:
            info = self.head(source)
            return self._copied_in_parts(info, key) if isinstance(info, ObjectInfo) else info
        outcome = self._attempt(lambda: self._store.copy(self._key(source), self._new_key(key)))
        if isinstance(outcome, BaseException):
            if _is_missing_object(outcome):
                return Missing()
            if status_code(str(outcome)) in REFUSALS:
                info = self.head(source)
                if isinstance(info, ObjectInfo) and info.size > self.capabilities.copied_bytes:
                    return self._copied_in_parts(info, key)
            return self._failure(outcome)
        return Stored(Token(None))  # the store reports none

    def _copied_in_parts(self, info: ObjectInfo, key: str) -> Stored | Missing | Failure:
        """Copy an object that the store doesn't copy itself."""
        # Only if it is still the described object: another client may replace it meanwhile.
        same: GetOptions = {} if info.token.e_tag is None else {"if_match": info.token.e_tag}

        def fetch(start: int, end: int) -> bytes:
            options: GetOptions = {**same, "range": (start, end)}
            return bytes(self._store.get(self._key(info.key), options=options).bytes())

        def writer(part: int) -> PartWriter:
            return open_writer(self._store, self._new_key(key), buffer_size=part, max_concurrency=2)

        outcome = self._attempt(lambda: write_parts(info, fetch, writer))
        if isinstance(outcome, BaseException):
            return Missing() if _is_missing_object(outcome) else self._failure(outcome)
        return Stored(Token(None))

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        outcome = self._attempt(lambda: self._store.head(self._key(key)))
        if isinstance(outcome, BaseException):
            return (
                Missing() if _is_missing_object(outcome) else self._failure(outcome, reading=True)
            )
        return self._info(outcome)

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        def request() -> list[ObjectInfo]:
            pages = self._store.list(
                self._key(prefix) if prefix else None, offset=start_after, chunk_size=1000
            )
            found: list[ObjectInfo] = []
            for page in pages:  # each is a request
                listed = [self._info(meta) for meta in page]
                found.extend(info for info in listed if until is None or info.key <= until)
                if until is not None and _ends_after(until, listed):
                    break
            return found

        outcome = self._attempt(request)
        return (
            self._failure(outcome, reading=True) if isinstance(outcome, BaseException) else outcome
        )

    def list_names(self, prefix: str) -> tuple[str, ...] | Failure:
        start = f"{self._key(prefix)}/" if prefix else ""

        def request() -> tuple[str, ...]:
            listed = self._store.list_with_delimiter(prefix or None)
            directories = (path.rstrip("/") + "/" for path in listed["common_prefixes"])
            files = (meta["path"] for meta in listed["objects"])
            return tuple(path[len(start) :] for path in (*directories, *files))

        outcome = self._attempt(request)
        return (
            self._failure(outcome, reading=True) if isinstance(outcome, BaseException) else outcome
        )

    def delete(self, key: str) -> Failure | None:
        outcome = self._attempt(lambda: self._store.delete(self._key(key)))
        if isinstance(outcome, BaseException) and not _is_missing_object(outcome):
            return self._failure(outcome)
        return None

    def _key(self, key: str) -> str:
        """Refuse a key that could leave its directory, or that the store would change."""
        if not self.capabilities.literal_names and "\\" in key:
            raise InvalidOperation(
                f"key {key!r} has a backslash, which Azure takes for a slash: name the table or "
                "the file without it"
            )
        return check_key(key)

    def _new_key(self, key: str) -> str:
        """Refuse a key that no new object may have; other clients may have stored one."""
        if not self.capabilities.literal_names and _ENDS_WITH_A_DOT.search(key):
            raise InvalidOperation(
                f"key {key!r} has a part that ends with a dot, which Azure advises against, as it "
                "may drop the dot: name the table or the file without it"
            )
        return self._key(key)

    def _token(self, meta: ObjectMeta | PutResult) -> Token:
        tag = meta.get("e_tag")
        if tag is not None and not self.capabilities.quoted_in_lists and not tag.endswith('"'):
            # https://github.com/Azure/azure-storage-java/issues/410
            tag = f'"{tag}"'
        return Token(tag, meta.get("version"))

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        modified = meta["last_modified"].timestamp()
        return ObjectInfo(meta["path"], meta["size"], self._token(meta), modified)

    def _attempt(self, request: Callable[[], _T]) -> _T | BaseException:
        """Make a request; an answer of the store is a value even where the client raises it."""
        forked = note_use() if self._remote else None
        if forked is not None:
            return forked
        try:
            return request()
        except (BaseError, OSError) as error:
            return error
        except ValueError as error:
            raise InvalidOperation(
                f"the store cannot name this key: {_first_line(error)}"
            ) from None
        except BaseException as error:
            if not is_panic(error):
                raise
            return PanicError(_first_line(error))

    def _failure(self, error: BaseException, reading: bool = False) -> Failure:
        if isinstance(error, ForkedError):
            return Failure(error.reason, ambiguous=False, permanent=True)
        if isinstance(error, PanicError):
            # The only known fact is that the request brings the client down.
            reason = (
                f"the store's client broke down ({error}); correct the endpoint and the options"
            )
            return Failure(reason, ambiguous=not reading, permanent=True)
        return classify_failure(str(error), reading, self._provider)


# ------------------------------------------------------------ errors, values


#: https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
_ENDS_WITH_A_DOT = re.compile(r"\.(?:/|$)")


def _ends_after(key: str, page: Sequence[ObjectInfo]) -> bool:
    """Return whether later pages have only later keys: not every store lists in order."""
    keys = [info.key for info in page]
    return bool(keys) and keys[-1] > key and keys == sorted(keys)


def _is_missing_object(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) and not is_missing_bucket(str(error))


def _is_refusal(error: BaseException) -> bool:
    """Return whether the store reports that the condition of a request did not hold."""
    text = str(error)
    if not isinstance(error, AlreadyExistsError | PreconditionError) or is_missing_bucket(text):
        return False
    if error_code(text) == "LeaseIdMissing":
        return False  # an object that another client has locked
    # S3 answers 409 when another conditional request is under way, which is no
    # refusal yet; Azure uses 409 to report that the object exists.
    return status_code(text) != 409 or error_code(text) == "BlobAlreadyExists"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


# ----------------------------------------------------------- storage options

_PROVIDERS: dict[str, Callable[..., Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_PROVIDER_OF: dict[type, str] = {S3Store: "s3", GCSStore: "gs", AzureStore: "az"}
_OPTION = re.compile(r"[a-z0-9_.-]+")
_OPTION_NAMED = re.compile(r"Configuration key: '([^']*)'")
_MISSING_KEY = re.compile(r"Missing (SecretAccessKey|AccessKeyId)")
_KEY_PAIR = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_memories: dict[str, MemoryStore] = {}

# A backend has one client of its endpoint, with its connections. The lakes of a process share the
# backends that are made of the same options, credentials and environment, as long as one of them
# lives (docs/design/0062-threads-of-a-process.md).
#
# The client of Google's store reads a file of credentials when it is made: the file may have
# changed since, so these are not shared.
_SHARED_PROVIDERS = frozenset({"s3", "az"})
_SHARED: WeakValueDictionary[Hashable, ObstoreBackend] = WeakValueDictionary()
_SHARING = lock()


def _environment() -> Hashable:
    """Return the environment, which has options of clients, credentials and proxies."""
    try:
        return frozenset(os.environ.items())
    except KeyError:  # another thread changes it now: equal to no other
        return object()


class _Options:
    """Storage options, sorted by the provider that understands them."""

    def __init__(
        self, options: Mapping[Any, object], boto3_session: object | None, settings: Settings
    ) -> None:
        self._boto3_session = session_of(boto3_session)
        self._settings = settings
        self._config: dict[str, str] = {}
        for key, value in options.items():
            if not isinstance(key, str) or not _is_option(value):
                raise InvalidOperation(
                    f"storage option {shown(key)} is of type {type(value).__name__}: name options "
                    "by text, and give each as text, a number or a boolean, or leave it out"
                )
            name = key.lower()
            if not _OPTION.fullmatch(name):
                raise InvalidOperation(
                    f"storage option {shown(key)} is not known: a name has letters, digits, _, - "
                    "and ."
                )
            if name in self._config:
                raise InvalidOperation(f"storage option {name!r} is given twice; keep one")
            if not DELTALAKE_ONLY.fullmatch(name):
                self._config[name] = str(value).lower() if isinstance(value, bool) else str(value)
            elif str(value).lower() == UNSAFE_WRITERS.get(name):
                _log.warning(
                    "storage option %s lets writers of that kind overwrite log entries; "
                    "let every writer of these tables use conditional puts",
                    name,
                )
        # An option of another provider is kept for tables in that provider's store.
        known = set[str]().union(*(self._known_to(provider) for provider in ("s3", "gs", "az")))
        for key in self._config.keys() - known:
            raise InvalidOperation(f"storage option {key!r} is not known; {advice_for(key)}")

    def endpoint(self, provider: str) -> str | None:
        """Return the endpoint of a provider's store, if one is set."""
        return shown_endpoint(provider, self._config, os.environ)

    def open_backend(self, store: Location) -> Store:
        """Open the backend that holds the keys of a location."""
        if store.scheme == "file":
            seconds = self._settings.request_timeout_seconds
            return LocalStore("/", seconds, durable=self._settings.durable_files)
        if store.scheme == "memory":
            if not store.authority:
                return ObstoreBackend(MemoryStore())
            return ObstoreBackend(_memories.setdefault(store.authority, MemoryStore()))
        known = self._known_to(store.scheme)
        config = {key: value for key, value in self._config.items() if key in known}
        with _SHARING:
            shared_as = self._shared_as(store, config)
            backend = None if shared_as is None else _SHARED.get(shared_as)
            if backend is None:
                backend = ObstoreBackend(self._build(store.scheme, store.authority, config))
                if shared_as is not None:
                    _SHARED[shared_as] = backend
            return backend

    def _shared_as(self, store: Location, config: dict[str, str]) -> Hashable | None:
        """Return all that the client of a store is made of, for those that are shared."""
        if store.scheme not in _SHARED_PROVIDERS:
            return None
        session = self._boto3_session if store.scheme == "s3" else None
        if session is not None and not type(session).__module__.startswith("boto3."):
            return None
        seconds = self._settings.request_timeout_seconds
        # A session counts as itself, not by what it is equal to; the key keeps it alive.
        identity = (id(session), session)
        return store, frozenset(config.items()), _environment(), seconds, identity

    def _known_to(self, provider: str) -> set[str]:
        """Return the options that a provider's backend understands, tested by their names alone."""
        keys = set(self._config)
        while keys:
            try:
                _PROVIDERS[provider]("bucket", config=dict.fromkeys(keys, "?"))
            except UnknownConfigurationKeyError as error:
                named = _OPTION_NAMED.search(str(error))
                if named is None or named[1] not in keys:
                    raise
                keys.remove(named[1])
            except (BaseError, ValueError):
                break
            else:
                break
        return keys

    def _build(
        self, provider: str, authority: str, config: dict[str, str]
    ) -> S3Store | GCSStore | AzureStore:
        check_endpoints(provider, config, os.environ)
        config = endpoint_options(provider, config, os.environ)
        seconds = self._settings.request_timeout_seconds
        limits = {
            # Silence ends a request; a long body that keeps coming does not.
            "read_timeout": seconds,
            "connect_timeout": min(seconds, 10.0),
            "timeout": 20 * seconds,
        }
        # These options are passed to the store and not to its client: options of the client would
        # replace the environment's settings for it (AWS_ALLOW_HTTP, AWS_PROXY_URL).
        # docs/upstream.md, "Options of the client replace those of the environment"
        for key, limit in limits.items():
            named = f"{PREFIXES[provider]}{key}"
            if named not in config and named.upper() not in os.environ:
                config.setdefault(key, f"{math.ceil(limit * 1000)}ms")
        name, _, account = authority.partition("@")
        arguments: dict[str, object] = {
            "config": config,
            "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=20 * seconds)},
        }
        if account:
            arguments["account_name"] = account.partition(".")[0]
            arguments["config"] = of_account(account, config, os.environ)
        if provider == "s3" and self._boto3_session is not None:
            arguments["credential_provider"] = boto3_credentials(self._boto3_session)
        try:
            opened: S3Store | GCSStore | AzureStore = _PROVIDERS[provider](name, **arguments)
            return opened
        except (BaseError, ValueError) as error:
            refused = _not_opened(provider, name, _without_values(str(error), provider, config))
        # Raised here, so that the client's error, which may quote secrets, is not its context.
        raise refused


def _not_opened(provider: str, name: str, reason: str) -> InvalidOperation:
    """Return the error for options of which a provider's client can't be made."""
    missing = _MISSING_KEY.search(reason)
    if missing is not None:
        given, other = _KEY_PAIR if missing[1] == "SecretAccessKey" else _KEY_PAIR[::-1]
        return InvalidOperation(
            f"the store {provider}://{name} cannot be opened: {given} is given without "
            f"{other}: set both in storage_options or in the environment"
        )
    if "Account must be specified" in reason:
        return InvalidOperation(
            f"the store az://{name} cannot be opened, as its account is not known: set "
            "AZURE_STORAGE_ACCOUNT_NAME in storage_options or in the environment, or write "
            f"abfss://{name}@account.dfs.core.windows.net/path"
        )
    first_line = reason.partition("\n")[0]
    return InvalidOperation(
        f"the store {provider}://{name} cannot be opened: {first_line}; correct storage_options"
    )


def _without_values(text: str, provider: str, config: Mapping[str, str]) -> str:
    """Return the client's words without the values of options: it quotes some, secret or not."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.lower().startswith(PREFIXES[provider])
    }
    options = {**environment, **config}
    return without(text, ((value, f"the value of {name}") for name, value in options.items()))


def _is_option(value: object) -> bool:
    is_small = isinstance(value, int) and value.bit_length() <= 64
    return is_small or isinstance(value, str | float)


# -------------------- large copies
#
# Copies of objects that the store does not copy itself: S3 refuses more than 5 GB, and Azure does
# not tell when it has copied one.
#
# They are fetched and stored part by part. (S3's own copy of parts is a request that the backend
# does not know, and that other stores with S3's interface may not know.)
# https://github.com/apache/arrow-rs-object-store/issues/563


#: The parts of larger copies: at least so large, and at most so many.
_COPIED_PART_BYTES = 64 * 1024**2
_MOST_PARTS = 9_000
#: The answers to a copy of a larger object: an invalid request, or one that is too large.
REFUSALS = (400, 413)


class PartWriter(Protocol):
    """A writer that takes an object piece by piece; nothing is stored before it is closed."""

    def write(self, buffer: bytes, /) -> int: ...

    def close(self) -> None: ...


def write_parts(
    info: ObjectInfo, fetch: Callable[[int, int], bytes], open_writer: Callable[[int], PartWriter]
) -> None:
    """Store an object that ``fetch`` reads range by range; ``open_writer`` gets the part size."""
    part = max(_COPIED_PART_BYTES, -(-info.size // _MOST_PARTS))
    writer = open_writer(part)
    for start in range(0, info.size, part):
        writer.write(fetch(start, min(start + part, info.size)))
    writer.close()


# -------------------- after fork
#
# A check whether this process was forked from one that had used the backend: it lacks its threads.
#
# A request would wait for these threads for ever.
# https://github.com/tokio-rs/tokio/pull/8202


_used = False
_forked_after_use = False


class ForkedError(OSError):
    """The error for a backend that can't be used in this process."""

    reason = (
        "this process was forked after its parent had used the store; start processes with "
        'multiprocessing.get_context("spawn"), or connect in the child only'
    )


def note_use() -> ForkedError | None:
    """Return the error that forbids requests, if there is one; called before each request."""
    global _used
    if _forked_after_use:
        return ForkedError()
    _used = True
    return None


def _after_fork() -> None:
    global _forked_after_use
    _forked_after_use = _used
    _SHARED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
