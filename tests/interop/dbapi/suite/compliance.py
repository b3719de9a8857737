"""SQLAlchemy's own suite for dialects, as it is."""

from sqlalchemy.testing.suite import *  # noqa: F403
