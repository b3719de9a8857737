"""Slips: planted bugs that change a line of the library's text, as an edit of it would."""

from lakevilla_testing.planted.slips import (
    cleaning,
    gateway,
    history,
    keys,
    listing,
    newer,
    published,
    redone,
    refs,
    together,
    vectors,
)

__all__ = [
    "cleaning",
    "gateway",
    "history",
    "keys",
    "listing",
    "newer",
    "published",
    "redone",
    "refs",
    "together",
    "vectors",
]
