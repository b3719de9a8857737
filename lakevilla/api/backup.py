"""Backups of a lake, and lakes that are restored from them."""

from __future__ import annotations

import os

from lakevilla.api.arguments import check_choice
from lakevilla.api.client.catalogs import catalog_names, named_report
from lakevilla.api.client.client import LakeClient
from lakevilla.errors import InvalidOperation
from lakevilla.maintenance.backup.backup import backup
from lakevilla.maintenance.backup.restore import restore
from lakevilla.results import Backup, Report
from lakevilla.settings import shown
from lakevilla.store.location import root_location

__all__ = ["back_up", "restore_from"]


def back_up(client: LakeClient, target: object, verify: str) -> Backup:
    """Copy the lake to a directory; see ``Lake.backup``."""
    client = client.main("backup")
    check_choice("verify", verify, "sizes", "hashes")
    place = _place(client, "backup", "target", target)
    client.ensure_safe_store()
    with client.measured("backup"):
        return client.run(backup(client.context, place, client.owner, hashes=verify == "hashes"))


def restore_from(
    client: LakeClient, backup: object, name: object, *, in_place: bool, verify: str
) -> Report:
    """Make the lake of a backup at the client's root; see ``lakevilla.restore``."""
    check_choice("verify", verify, "sizes", "hashes")
    if name is not None and not (isinstance(name, str) and name):
        raise InvalidOperation(f"restore: name is the name of a backup, not {shown(name)}")
    place = _place(client, "restore", "backup", backup)
    client.ensure_safe_store()
    work = restore(
        client.context,
        place,
        name,
        owner=client.owner,
        in_place=in_place,
        hashes=verify == "hashes",
    )
    with client.measured("restore"):
        report = client.run(work)
    client.checkpoint_soon()
    return named_report(report, catalog_names(client.context))


def _place(client: LakeClient, verb: str, argument: str, given: object) -> str:
    """Return the place of a backup, whose files may be read; refuse one in or around the lake."""
    if isinstance(given, os.PathLike):
        given = os.fspath(given)
    if not isinstance(given, str) or not given:
        raise InvalidOperation(f"{verb}: {argument} is a path or a URI, not {shown(given)}")
    place, root = root_location(given), root_location(client.root)
    one, other = f"{place.uri.rstrip('/')}/", f"{root.uri.rstrip('/')}/"
    if one.startswith(other) or other.startswith(one):
        where = "is the lake itself" if one == other else "and the lake are one inside the other"
        raise InvalidOperation(
            f"{verb}: {place.uri} {where}: a backup is lost with what it is stored in; choose a "
            "directory beside the lake, or better another bucket"
        )
    return client.name_place(place.uri)
