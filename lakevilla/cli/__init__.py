"""The command line: ``lakevilla``, over the public API alone.

``app`` has the commands, ``output`` their tables and JSON, ``demo`` the tour. No module imports
this package.
"""

from lakevilla.cli.app import main

__all__ = ["main"]
