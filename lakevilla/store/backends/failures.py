"""What went wrong with one request, from what the backend says about it.

Only the HTTP status and the store's error code are believed and repeated: the
rest of such a text holds URLs and bodies, which may hold secrets.
"""

from __future__ import annotations

import re

from lakevilla.store.base import Failure

__all__ = [
    "classify_failure",
    "error_code",
    "is_beyond_the_end",
    "is_missing_bucket",
    "status_code",
]

_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|\"(?:reason|code)\": *\"(\w+)\"")
_TRANSPORT = re.compile(r"HttpError \{\s*kind: (\w+)")
_URL = re.compile(r"https?://([^/\s]*)\S*")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")

_HINTS = {
    301: "the bucket is in another region; set AWS_REGION",
    400: "the request is malformed for this store; check endpoint, region and credentials",
    401: "credentials are missing or wrong; check storage_options",
    403: "credentials were refused; check them, their rights, and this machine's clock",
    404: "there is no such bucket or container; create it or correct the location",
    405: "the store does not allow the method; check the endpoint",
    411: "the store does not speak this protocol; check the endpoint",
    413: "the object is too large for one request; lower settings.target_file_size_bytes",
    501: "the store does not implement this kind of request; use one with conditional writes, "
    'or connect with conditional_writes="check"',
}

#: What a server says that will not do it. Any other 5xx, known or new, leaves it open: a gateway
#: may say it of a server that has done it.
_NOT_DONE = (501, 505)


def classify_failure(text: str, reading: bool = False) -> Failure:
    """Classify a failed request; a ``reading`` one leaves nothing in doubt."""
    status, code = status_code(text), error_code(text)
    said = " ".join(str(part) for part in (status, code) if part is not None)
    if is_missing_bucket(text):
        return _permanent(f"{said or 404}: {_HINTS[404]}")
    if status is None:
        return _transport_failure(text, reading)
    if status in (409, 412):
        return Failure(f"{said}, another write is under way", ambiguous=False, conflict=True)
    if status == 429:
        # Turned away at the door, before the request was looked at.
        return Failure(f"{said}, slow down", ambiguous=False, throttled=True)
    is_server_error = status >= 500 and status not in _NOT_DONE
    if status == 408 or is_server_error or code == "RequestTimeout":
        throttled = status == 503 or code == "SlowDown"
        return Failure(f"{said}, server error", ambiguous=not reading, throttled=throttled)
    return _permanent(f"{said}: {_HINTS.get(status, 'the store turned the request down')}")


def _transport_failure(text: str, reading: bool) -> Failure:
    """No HTTP status: the request did not get through, or its answer did not."""
    # What a bucket or a table is called says nothing of what went wrong.
    words = _URL.sub("", text).lower()
    if "redirect" in words:
        return _permanent(_HINTS[301])
    if "badscheme" in words:
        return _permanent("plain http is off; set AWS_ALLOW_HTTP to true for a local endpoint")
    if "credential" in words or any(map(_gives_credentials, _URL.findall(text))):
        return _permanent(
            "no credentials were found; pass them in storage_options or boto3_session"
        )
    kind = _TRANSPORT.search(text)
    match kind[1] if kind is not None else None:
        case "Connect":
            return Failure("could not connect", ambiguous=False)
        case "Timeout":
            return Failure("timed out", ambiguous=not reading)
        case None:
            return Failure("the store's client failed", ambiguous=not reading)
        case other:
            return Failure(f"the connection broke ({other.lower()})", ambiguous=not reading)


def _gives_credentials(host: str) -> bool:
    return host.lower().startswith(("169.254.169.254", "metadata.google"))


def _permanent(reason: str) -> Failure:
    return Failure(reason, ambiguous=False, permanent=True)


def is_missing_bucket(text: str) -> bool:
    return any(sign in text for sign in _NO_BUCKET)


def is_beyond_the_end(text: str) -> bool:
    """Whether a range was refused because the object has no byte of it."""
    # The memory store says it in words; a suffix of an empty object has an
    # answer on S3 that the client cannot read.
    return status_code(text) == 416 or "Invalid range" in text or "ParseContentRange" in text


def status_code(text: str) -> int | None:
    found = _STATUS.search(text)
    return None if found is None else int(found[1])


def error_code(text: str) -> str | None:
    found = _CODE.search(text)
    return None if found is None else found[1] or found[2]
