"""Fixtures that all tests share."""

import os

from hypothesis import settings

pytest_plugins = ["tests.fixtures.s3", "tests.fixtures.signals"]

# `make test` draws the same examples each time, `make soak` new ones.
settings.register_profile("repeatable", derandomize=True)
if not os.environ.get("LAKEVILLA_SOAK"):
    settings.load_profile("repeatable")
