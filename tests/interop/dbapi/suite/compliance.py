"""Import SQLAlchemy's own test suite for dialects, unchanged."""

from sqlalchemy.testing.suite import *  # noqa: F403
