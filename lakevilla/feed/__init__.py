"""The change feed: the commits of a lake with what they did to its tables, version by version.

It walks HEAD and its pages and stores nothing (docs/design/0033-change-feed.md).
"""
