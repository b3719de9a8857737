"""Make the commands of the command line once in a process.

Typer's ``CliRunner`` makes all fifty with their parameters for each invocation, which takes a tenth
of a second; an invocation leaves nothing in them.
"""

from functools import cache

import typer.testing
from typer.main import get_command

vars(typer.testing)["_get_command"] = cache(get_command)
