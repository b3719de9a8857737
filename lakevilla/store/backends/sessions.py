"""Sessions of boto3 and botocore, which give the credentials for S3."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lakevilla.errors import InvalidOperation

#: The time for which credentials that a session has given are used. A session renews its own when
#: they expire within ten minutes, and so gives none that are not good for as long.
_LIFE = timedelta(minutes=10)


def session_of(session: Any) -> Any:
    """Return the source of the credentials as a session of boto3; None if there is none.

    Raises
    ------
    InvalidOperation
        It is a client, a profile's name, or anything else that is no session.
    """
    if session is None:
        return None
    package = type(session).__module__.partition(".")[0]
    if callable(getattr(session, "get_credentials", None)):
        if package == "botocore":
            import boto3

            return boto3.Session(botocore_session=session)
        if hasattr(session, "region_name"):
            return session
    raise InvalidOperation(
        f"boto3_session is a {package}.{type(session).__name__}, and must be a session: pass "
        "boto3.Session(), which may be given a profile or keys, not a client made of one"
    )


def boto3_credentials(session: Any) -> object:
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider(session, ttl=_LIFE)
    except (BotoCoreError, ValueError) as error:
        raise InvalidOperation(
            f"boto3_session gives no credentials ({type(error).__name__}): log in, or pass a "
            "session that has some"
        ) from None
