"""Make the commands of the command line once in a process, and hide the root of whoever runs tests.

Typer's ``CliRunner`` makes all fifty with their parameters for each invocation, which takes a tenth
of a second; an invocation leaves nothing in them.
"""

import os
from functools import cache

import typer.testing
from typer.main import get_command

vars(typer.testing)["_get_command"] = cache(get_command)

os.environ.pop("LAKEVILLA_ROOT", None)
