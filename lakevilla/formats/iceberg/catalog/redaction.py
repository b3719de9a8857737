"""The words of a catalog's errors, without the secrets among the catalog's properties.

A client of a catalog repeats its address, and a server may repeat a token that it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from lakevilla.store.redaction import without

_SECRET = re.compile(r"token|secret|key|passw|pwd|credential|sas|connection|auth", re.IGNORECASE)


def reason(error: Exception, properties: Mapping[str, object]) -> str:
    """Return an error's kind and first line, each secret of the properties left out."""
    text = without_secrets(str(error), properties)
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no reason'}"


def without_secrets(text: str, properties: Mapping[str, object]) -> str:
    """Return a text with the names of properties in place of their secrets."""
    named = ((secret, f"from its property {name}") for secret, name in _secrets(properties))
    return without(text, named)


def _secrets(properties: Mapping[str, object], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in properties.items():
        whole = f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _secrets(value, f"{whole}.")
        elif "://" in str(value):
            yield from ((part, whole) for part in _secrets_of_url(str(value)))
        elif _SECRET.search(whole) and not whole.endswith(".type"):
            # A credential is an id and a secret.
            yield from ((part, whole) for part in {str(value), str(value).partition(":")[2]})


def _secrets_of_url(url: str) -> Iterator[str]:
    """Yield the password, the query and the fragment of a URL."""
    try:
        parts = urlsplit(url)
        yield parts.password or ""
    except ValueError:
        yield url
        return
    yield parts.query
    yield parts.fragment
