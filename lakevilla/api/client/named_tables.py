"""A lake as a collection of names."""

from __future__ import annotations

from collections.abc import Iterator

from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.glance import has_table, table_count, table_names


class NamedTables:
    """What a collection of tables by their names answers."""

    _client: LakeClient

    def __iter__(self) -> Iterator[str]:
        """The names of the tables in the lake, as ``tables`` lists them, by one GET."""
        return table_names(self._client)

    def __len__(self) -> int:
        """How many tables are in the lake."""
        return table_count(self._client)

    def __bool__(self) -> bool:
        """True: a lake without tables is one, too."""
        return True

    def __contains__(self, name: object) -> bool:
        """Whether a table of that name is in the lake, in any spelling.

        One that only lies under the root is not, until its first commit or ``register``;
        ``discover`` lists those.
        """
        return has_table(self._client, name)
