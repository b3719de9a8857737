"""The change feed of a lake, as its users request it."""

from lakevilla.api.feed.lake_feed import ChangeFeed

__all__ = ["ChangeFeed"]
