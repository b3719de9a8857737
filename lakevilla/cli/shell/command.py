"""The command."""

from __future__ import annotations

from lakevilla.cli.command import On, Options, Profile, Root, command
from lakevilla.cli.connection import open_lake


@command
def shell(
    root: Root,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
) -> None:
    """Open a prompt for SQL, with completion and history.

    From a pipe it runs what comes, up to the first error.
    """
    from lakevilla.cli.shell.opened import run_shell  # so that other commands don't load it

    with open_lake(root, option, profile) as lake:
        run_shell(lake, on)
