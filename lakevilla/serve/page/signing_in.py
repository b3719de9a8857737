"""Browsers that have signed in: a cookie that a token has signed, of which nothing is stored.

A browser sends the token once, in a form. Its cookie tells when it ends, and a digest that only
somebody with the token can make: so each gateway with that token knows it, and nobody learns the
token from it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from lakevilla.clock import Clock
from lakevilla.serve.refusal import Refusal

#: A browser is signed in for so long.
SECONDS = 12 * 3600
_MOST_FORM_BYTES = 64 << 10
_VALUE = re.compile(r"(\d{1,12})\.([0-9a-f]{64})")
#: A path of this gateway, which no browser takes for another host.
_PATH = re.compile(r"/(?![/\\])[^\x00-\x20\\]*")


class Cookies:
    """The cookies of a lake's pages.

    Parameters
    ----------
    root : str
        The lake. Gateways of other lakes at this host have cookies of their own.
    tokens : sequence of str
        The tokens with which a browser can sign in.
    clock : Clock
        By which a cookie ends.
    """

    def __init__(self, root: str, tokens: Sequence[str], clock: Clock) -> None:
        self._root, self._tokens, self._clock = root, tokens, clock
        self._name = f"lakevilla-{sha256(root.encode()).hexdigest()[:12]}"

    def set(self, request: Request, answer: Response, token: str) -> None:
        """Give a browser the cookie of a token."""
        ends = str(int(self._clock.now()) + SECONDS)
        answer.set_cookie(
            self._name,
            f"{ends}.{self._signed(token, ends)}",
            max_age=SECONDS,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def end(self, answer: Response) -> None:
        """Take its cookie from a browser."""
        answer.delete_cookie(self._name, httponly=True, samesite="strict")

    def token_of(self, request: Request) -> str | None:
        """Return the token with which a browser has signed in; None if it has not."""
        found = _VALUE.fullmatch(request.cookies.get(self._name, ""))
        if found is None or int(found[1]) <= self._clock.now():
            return None
        for token in self._tokens:
            if hmac.compare_digest(self._signed(token, found[1]), found[2]):
                return token
        return None

    def _signed(self, token: str, ends: str) -> str:
        message = f"lakevilla page\n{ends}\n{self._root}".encode()
        return hmac.new(token.encode(), message, sha256).hexdigest()


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form that a page of this gateway has sent.

    Raises
    ------
    Refusal
        A page elsewhere has sent it, or it is too large, or no form.
    """
    origin = request.headers.get("origin")
    came_from = None if origin is None else urlsplit(origin).netloc
    is_own = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    if not is_own or came_from not in (None, request.headers.get("host")):
        message = "a page elsewhere has sent this form: send it from the gateway's own page"
        raise Refusal(403, "ForbiddenException", message)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_FORM_BYTES:
            message = f"the form has more than {_MOST_FORM_BYTES} bytes"
            raise Refusal(413, "BadRequestException", message)
    try:
        found = parse_qs(body.decode(), max_num_fields=20, strict_parsing=bool(body))
    except ValueError:
        raise Refusal(400, "BadRequestException", "the body is no form") from None
    return {name: values[-1] for name, values in found.items()}


def path_in(text: str) -> str:
    """Return a path of this gateway as it was given; of anything else, that of the first page."""
    return text if _PATH.fullmatch(text) else "/"
