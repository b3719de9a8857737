"""The fault of one request, derived from the backend's error text.

Only the HTTP status and the store's error code are trusted and repeated: the
rest of such a text holds URLs and bodies, which may hold secrets.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lakevilla.store.base import Failure
from lakevilla.store.location import seconds_between_writes

#: Azure deletes objects in batches, whose answers have a status of their own for each object.
_STATUS = re.compile(
    r"Server returned non-2xx status code: (\d{3})|delete request failed .*\(code: (\d{3})\)$",
    re.MULTILINE,
)
#: S3 deletes objects in batches, too, with a code for each object.
_NOT_DELETED = re.compile(r"DeleteObjects request failed for key .*\(code: ([A-Za-z]\w*)\)$", re.M)
_STATUS_OF_DELETION = {"AccessDenied": 403, "SlowDown": 503, "ServiceUnavailable": 503}
#: No request went to the store.
_NO_TOKEN = re.compile(
    r"Generic \w+ error: (?:Error performing token request"
    r"|'az account get-access-token' command failed|(Error reading federated token file))"
)
#: A session of the user's that should have given credentials, and has raised instead.
_NO_SESSION = re.compile(r"External \w+ credential provider: (\w+)")
_CODE = re.compile(r"<Code>(\w+)</Code>|\"(?:reason|code)\": *\"(\w+)\"")
_TRANSPORT = re.compile(r"HttpError \{\s*kind: (\w+)")
#: The kind of a certificate's fault; the client refused it before it sent anything.
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_CERTIFICATES = {
    "Expired": ("has expired", "renew it at the store, or correct this machine's clock"),
    "NotValidYet": ("is not valid yet", "correct this machine's clock, or the certificate's"),
    "NotValidForName": ("is one of another host", "check the endpoint's name"),
    "Revoked": ("was revoked", "renew it at the store"),
}
_UNTRUSTED = (
    "is not trusted here",
    "let SSL_CERT_FILE name a file with the authorities to trust, that of the store among them",
)
_URL = re.compile(r"https?://([^/\s]*)\S*")
_NO_BUCKET = (
    "NoSuchBucket",
    "ContainerNotFound",
    "specified bucket does not exist",
    "specified container does not exist",
)


class _Names(NamedTuple):
    """The names under which a provider's users know its options."""

    endpoint: str
    credentials: str
    region: str
    allows_http: str
    #: The rights of a policy, by the request that needs each; none where there are only roles.
    rights: dict[str, str]


_NAMES = {
    "s3": _Names(
        "AWS_ENDPOINT_URL (left out: Amazon's own)",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "AWS_ALLOW_HTTP",
        {
            "get": "s3:GetObject",
            "put": "s3:PutObject",
            "list": "s3:ListBucket",
            "delete": "s3:DeleteObject",
        },
    ),
    "gs": _Names(
        "GOOGLE_BASE_URL (left out: Google's own)",
        "GOOGLE_SERVICE_ACCOUNT",
        "the region",
        "GOOGLE_ALLOW_HTTP",
        {
            "get": "storage.objects.get",
            "put": "storage.objects.create",
            "list": "storage.objects.list",
            "delete": "storage.objects.delete",
        },
    ),
    "az": _Names(
        "AZURE_STORAGE_ENDPOINT (left out: Azure's own)",
        "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_CLIENT_ID with its secret",
        "the region",
        "AZURE_ALLOW_HTTP",
        {},
    ),
}
_WHERE = "in storage_options or the environment"
#: What a request is, as its error has it: the first that is found counts.
_REQUESTS = (
    ("list", "list request"),
    ("delete", "DeleteObjects"),
    ("delete", "performing DELETE "),
    ("get", "performing GET "),
    ("get", "performing HEAD "),
    ("put", "performing PUT "),
    ("put", "performing POST "),
)

_HINTS = {
    301: "the bucket is in another region: set {region} " + _WHERE,
    400: "the request is malformed for this store: check the endpoint, {endpoint}, {region} and "
    "{credentials}",
    401: "the credentials are missing or wrong: check {credentials} " + _WHERE,
    403: "the credentials were refused: check {credentials} "
    + _WHERE
    + ", {right}, and this machine's clock",
    404: "there is no such bucket or container: create it, or correct the name in the root",
    405: "the store does not allow the method: check the endpoint, {endpoint}",
    411: "the store does not speak this protocol: check the endpoint, {endpoint}",
    413: "the object is too large for one request: lower settings.target_file_size_bytes",
    501: "the store does not implement this kind of request: use one with conditional writes, "
    'or connect with conditional_writes="check"',
}
#: Error codes of Azure's, and what to do.
_HINTS_OF_CODES = {
    "AuthorizationPermissionMismatch": "the identity, or the token, may not do this: give it the "
    "role Storage Blob Data Contributor on the container, or the permissions racwdl",
    "AuthorizationFailure": "the account's network rules, the key or the token forbid it, or the "
    "token has expired: check {credentials} " + _WHERE + ", or allow this machine's network",
    "KeyBasedAuthenticationNotPermitted": "the account refuses keys: pass an identity, such as "
    "AZURE_CLIENT_ID with its secret",
    "PublicAccessNotPermitted": "the container can't be read without credentials: set "
    "{credentials} " + _WHERE,
    "AccountIsDisabled": "the account is disabled: enable it",
    "ContainerBeingDeleted": "the container is being deleted: choose another one",
    "BlobArchived": "the object is in the archive: rehydrate it, and exclude the lake from such "
    "rules",
    "BlobImmutableDueToPolicy": "a policy keeps this object as it is: exclude the lake from it",
    "LeaseIdMissing": "another client holds a lease on the object: break the lease",
    "InvalidResourceName": "the container, or the object, has a name that Azure does not take: "
    "correct it in the root",
    "OutOfRangeInput": "the name of the object, or a part of the request, is too long",
}
#: Those that hold for any request to the store.
_OF_STORE = frozenset(
    {
        "KeyBasedAuthenticationNotPermitted",
        "PublicAccessNotPermitted",
        "AccountIsDisabled",
        "ContainerBeingDeleted",
    }
)
#: Azure's words about a token (SAS) whose time is over, or has not come.
_NOT_NOW = "Signature not valid in the specified time frame"
#: Error codes about the credentials themselves, for any request.
_BAD_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)

#: Statuses of a server that refuses the work. Any other 5xx, known or new, leaves the outcome open:
#: a gateway may return it for a server that has done the work.
_NOT_DONE = (501, 505)


def classify_failure(text: str, reading: bool = False, provider: str = "s3") -> Failure:
    """Classify a failed request; a request that only reads leaves nothing in doubt."""
    names = _NAMES[provider]
    status, code = status_code(text), error_code(text)
    status_text = " ".join(str(part) for part in (status, code) if part is not None)
    if is_missing_bucket(text):
        return _of_store(f"{status_text or 404}: {_hint(404, names)}")
    no_token = _NO_TOKEN.match(text)
    if no_token is not None:
        return _token_failure(text, no_token[1] is not None, names)
    no_session = _NO_SESSION.search(text) if status is None else None
    if no_session is not None:
        # The service that it asks may be back soon, or a file with credentials written again.
        return Failure(
            f"boto3_session gave no credentials ({no_session[1]}): check the service that gives "
            "them, or log in again",
            ambiguous=False,
            of_store=True,
        )
    if code == "AuthenticationFailed" and _NOT_NOW in text:
        return _of_store(
            f"{status_text}: the token (SAS) has expired, or is not valid yet: set a new one as "
            f"AZURE_STORAGE_SAS_TOKEN {_WHERE}, or correct this machine's clock"
        )
    if code in _HINTS_OF_CODES:
        hint = _HINTS_OF_CODES[code].format_map(names._asdict())
        failure = _of_store if code in _OF_STORE else _permanent
        return failure(f"{status_text}: {hint}")
    if code == "InvalidBlockList":
        reason = f"{status_text}, another upload of the object has ended meanwhile"
        return Failure(reason, ambiguous=not reading)
    if status is None:
        return _transport_failure(text, reading, names)
    if 400 <= status < 500 and any(map(_gives_credentials, _URL.findall(text))):
        # the request went to the metadata service of this machine's cloud, not to the store
        return _no_credentials(names)
    if status in (409, 412):
        return Failure(f"{status_text}, another write is under way", ambiguous=False, conflict=True)
    if status == 429:
        # Turned away before the request was processed.
        of_object = seconds_between_writes(provider) > 0 and not reading
        reason = f"{status_text}, slow down"
        return Failure(reason, ambiguous=False, throttled=True, of_object=of_object)
    is_server_error = status >= 500 and status not in _NOT_DONE
    if status == 408 or is_server_error or code == "RequestTimeout":
        throttled = status == 503 or code == "SlowDown"
        return Failure(f"{status_text}, server error", ambiguous=not reading, throttled=throttled)
    if status == 401 or code in _BAD_CREDENTIALS:
        return _of_store(f"{status_text}: {_hint(403 if status == 403 else 401, names, text)}")
    if status == 301:
        return _of_store(f"{status_text}: {_hint(301, names)}")
    return _permanent(f"{status_text}: {_hint(status, names, text)}")


def _token_failure(text: str, is_file: bool, names: _Names) -> Failure:
    """Classify a failure to get a token for the store, to which no request has gone."""
    status = status_code(text)
    if is_file:
        return _of_store(
            "the file of AZURE_FEDERATED_TOKEN_FILE can't be read: correct its path, or the rights"
        )
    if "get-access-token" in text:
        return _of_store(
            "`az account get-access-token` failed: install the Azure CLI and run `az login`, or "
            f"set {names.credentials} {_WHERE}"
        )
    if any(map(_gives_credentials, _URL.findall(text))):
        return _no_credentials(names)
    if status is None or status >= 500 or status in (408, 429):
        return Failure("no token was given for the store (the identity's service failed)", False)
    return _of_store(f"{status}: the identity was refused a token: check {names.credentials}")


def _transport_failure(text: str, reading: bool, names: _Names) -> Failure:
    """Classify a failure without HTTP status: the request, or its answer, was lost."""
    # The name of a bucket or a table shows nothing about the fault.
    words = _URL.sub("", text).lower()
    if "redirect" in words:
        return _of_store(_hint(301, names))
    if "badscheme" in words:
        return _of_store(f"plain http is off; set {names.allows_http} to true for a local endpoint")
    if "credential" in words or any(map(_gives_credentials, _URL.findall(text))):
        return _no_credentials(names)
    kind = _TRANSPORT.search(text)
    match kind[1] if kind is not None else None:
        case "Connect":
            return Failure(_why_unconnected(text, names), ambiguous=False, of_store=True)
        case "Timeout":
            return Failure("timed out", ambiguous=not reading)
        case None:
            return Failure("the store's client failed", ambiguous=not reading)
        case other:
            return Failure(f"the connection broke ({other.lower()})", ambiguous=not reading)


def _why_unconnected(text: str, names: _Names) -> str:
    words = _URL.sub("", text)
    refused = _CERTIFICATE.search(words)
    if refused is not None:
        kind = refused[1].removesuffix("Context")
        what, advice = _CERTIFICATES.get(kind, _UNTRUSTED)
        return f"the store's certificate {what}: {advice}"
    endpoint = f"the endpoint, {names.endpoint} {_WHERE}"
    if "dns error" in words:
        return f"the store's host has no address: check this machine's DNS, and {endpoint}"
    return (
        "could not connect: check that the store is up and can be reached from here, and "
        + endpoint
    )


def _hint(status: int, names: _Names, text: str = "") -> str:
    hint = _HINTS.get(status, "the store rejected the request")
    return hint.format_map({**names._asdict(), "right": _right(names, text)})


def _right(names: _Names, text: str) -> str:
    """Return what a policy must allow for the request of this error."""
    request = next((kind for kind, sign in _REQUESTS if sign in text), "")
    right = names.rights.get(request)
    return "their rights" if right is None else f"that they may do {right} there"


def _no_credentials(names: _Names) -> Failure:
    boto3 = ", or pass boto3_session" if names is _NAMES["s3"] else ""
    return _of_store(f"no credentials were found: set {names.credentials} {_WHERE}{boto3}")


def _gives_credentials(host: str) -> bool:
    return host.lower().startswith(("169.254.169.254", "metadata.google"))


def _permanent(reason: str) -> Failure:
    return Failure(reason, ambiguous=False, permanent=True)


def _of_store(reason: str) -> Failure:
    return Failure(reason, ambiguous=False, permanent=True, of_store=True)


def is_missing_bucket(text: str) -> bool:
    return any(sign in text for sign in _NO_BUCKET)


def is_beyond_the_end(text: str) -> bool:
    """Return whether a range was refused because the object has no byte of it."""
    if status_code(text) == 416:
        return True
    # The memory store reports it in words; a suffix of an empty object has an
    # answer on S3 that the client cannot read. Azurite answers a range that begins at the end with
    # no bytes, which the client takes for a fault.
    # https://github.com/minio/minio/issues/20844
    signs = ("Invalid range", "ParseContentRange", "Wanted range starting at")
    return any(sign in text for sign in signs)


def is_the_whole(text: str) -> bool:
    """Return whether the store answered a range with the whole object, as servers without ranges
    may.
    """
    return "non-partial response" in text


def ignores_ranges() -> Failure:
    return _of_store(
        "the store answers a range request with the whole object: it must support Range"
    )


def status_code(text: str) -> int | None:
    found = _STATUS.search(text)
    if found is not None:
        return int(found[1] or found[2])
    not_deleted = _NOT_DELETED.search(text)
    return None if not_deleted is None else _STATUS_OF_DELETION.get(not_deleted[1], 500)


def error_code(text: str) -> str | None:
    found = _CODE.search(text) or _NOT_DELETED.search(text)
    return None if found is None else next(filter(None, found.groups()))


class PanicError(OSError):
    """The error for a panic of the backend's client."""


def is_panic(error: BaseException) -> bool:
    """Return whether the client panicked; no ``except Exception`` would see that."""
    return type(error).__name__ == "PanicException"
