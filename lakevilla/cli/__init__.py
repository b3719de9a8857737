"""The command line ``lakevilla``, which uses only the public API.

``app`` and the modules next to it have the commands, ``output`` their tables and JSON, ``demo`` the
tour. No other package imports this one.
"""

from lakevilla.cli.app import main

__all__ = ["main"]
