"""Answers of the gateway that are errors: status, type and message, as Iceberg's clients know them.

What every catalog answers has the words of Java's library, by which clients and their tests know
it. A client acts by the status: after 409 it deletes the files that it has written for a commit,
and after 5xx it keeps them, as the commit may have taken effect.
"""

from __future__ import annotations

from lakevilla.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    RefNotFound,
    StoreError,
    TableExists,
    TableNotFound,
    UnsupportedTableFeature,
    VersionNotFound,
)


class Refusal(Exception):
    """A request is answered with an error.

    Parameters
    ----------
    status : int
        Of HTTP.
    kind : str
        The name of the exception that a client raises.
    message : str
        What is wrong, with the table's name, and what to do next.
    retry_seconds : int, optional
        After which the client may send the request again.
    """

    def __init__(
        self, status: int, kind: str, message: str, retry_seconds: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message
        self.retry_seconds = retry_seconds


def no_table(name: str) -> Refusal:
    """Return the answer to a request for a table that the lake does not have."""
    return Refusal(404, "NoSuchTableException", f"Table does not exist: {name}")


def no_namespace(name: str) -> Refusal:
    """Return the answer to a request for a namespace that the lake does not have."""
    return Refusal(404, "NoSuchNamespaceException", f"Namespace does not exist: {name}")


def already_there(kind: str, name: str) -> Refusal:
    """Return the answer to a request to make what is there; ``kind``: ``Table``, ``Namespace``."""
    return Refusal(409, "AlreadyExistsException", f"{kind} already exists: {name}")


def not_built(what: str) -> Refusal:
    """Return the answer to a request that the protocol has, and the gateway has not."""
    return Refusal(406, "UnsupportedOperationException", f"the gateway does not {what}")


def may_have_been_merged(message: str) -> Refusal:
    """Return the answer to a commit on a branch, or of a table there, that is not there any more.

    The commit may have taken effect before: after a 404 its client would delete files that the lake
    has by now.
    """
    return Refusal(500, "CommitStateUnknownException", message)


#: The status and the type of each error; the first class that fits counts.
_ANSWERS: tuple[tuple[type[LakeVillaError], int, str], ...] = (
    (CommitOutcomeUnknown, 504, "CommitStateUnknownException"),
    (TableExists, 409, "AlreadyExistsException"),
    (TableNotFound, 404, "NoSuchTableException"),
    (RefNotFound, 404, "NoSuchWarehouseException"),
    (VersionNotFound, 404, "NoSuchWarehouseException"),
    (ConflictError, 409, "CommitFailedException"),
    (UnsupportedTableFeature, 406, "UnsupportedOperationException"),
    (InvalidOperation, 400, "BadRequestException"),
    (StoreError, 503, "ServiceUnavailableException"),
)


def refusal_of(error: LakeVillaError, *, writes: bool) -> Refusal:
    """Return the answer for an error of the library.

    ``writes``: of a request that changes something. If the store fails there, nobody knows what has
    taken effect, and a 503 would be leave to send the request again.
    """
    for kind, status, name in _ANSWERS:
        if isinstance(error, kind):
            if kind is StoreError and writes:
                return Refusal(504, "CommitStateUnknownException", error.message)
            return Refusal(status, name, error.message)
    return Refusal(500, "InternalServerError", error.message)
