"""SQLAlchemy's own suite for dialects, as it is."""

from typing import Any

from sqlalchemy.testing import suite
from sqlalchemy.testing.suite import *  # noqa: F403


class HasTableTest(suite.HasTableTest):
    """Its own makes views wherever it runs: it asks for a requirement, and not what that says."""

    @classmethod
    def define_views(cls, metadata: Any) -> None:
        """A lake has none."""
