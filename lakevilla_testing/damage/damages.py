"""Damages of a lake's objects: lost, truncated, set back, or restored from a backup."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakevilla_testing.damage.scene import Files, Scene, put_files

#: Directories that are lost or set back as a whole; the empty one is the lake.
DIRECTORIES = (
    "",
    "_lakevilla",
    "_lakevilla/bases",
    "_lakevilla/branches",
    "_lakevilla/commits",
    "_lakevilla/heads",
    "_lakevilla/keys",
    "_lakevilla/leaves",
    "_lakevilla/pages",
    "_lakevilla/recent",
    "_lakevilla/txns",
    "a",
    "a/_delta_log",
    "a/_lakevilla",
    "a/data",
    "a/metadata",
    "copies/a",
    "sales",
    "sales/b/_lakevilla",
)
#: Objects that have the same name in each place.
_FIXED = ("HEAD.json", "lake.json", "version-hint.text", "time.json")


@dataclass(frozen=True)
class Damage:
    """A change of some objects.

    Attributes
    ----------
    how : str
        ``lost``, ``truncated``, ``emptied``, ``older``; ``copied over``: older objects replace
        newer ones, and no object is missing; ``restored``: a directory is as it was.
    what : str
        The kind of object, or the directory.
    objects : dict
        By key, the bytes after the damage; None if the object is gone.
    """

    how: str
    what: str
    objects: dict[str, bytes | None]

    @property
    def name(self) -> str:
        return f"{self.how} {self.what}"

    def sets_head_back(self, files: Files) -> bool:
        """Whether HEAD, or a branch's HEAD, is an older one now: clients may go on from it."""
        return any(
            body is None
            if key in newest_heads(files)
            else body is not None and key.endswith("HEAD.json") and body.endswith(b"}")
            for key, body in self.objects.items()
        )

    def loses_files_of(self, table: str) -> bool:
        """Whether a data file in a table's directory is gone."""
        return any(
            body is None and key.startswith(f"{table}/") and key.endswith(".parquet")
            for key, body in self.objects.items()
        )

    def strike(self, root: Path) -> None:
        """Damage the lake."""
        for key, body in self.objects.items():
            if body is None:
                (root / key).unlink(missing_ok=True)
            else:
                put_files(root, {key: body})

    def restore(self, root: Path, files: Files) -> list[str]:
        """Put the objects back; return the keys that clients have written in the meantime.

        These stay as they are: nobody restores an object over a newer one.
        """
        written = []
        for key, body in self.objects.items():
            path = root / key
            now = path.read_bytes() if path.exists() else None
            if now is not None and now not in (body, files.get(key)):
                written.append(key)
            elif key in files:
                put_files(root, {key: files[key]})
            else:
                path.unlink(missing_ok=True)
        return written


def kind_of(key: str) -> str:
    """Return an object's key without the ids and numbers in it."""
    *directories, name = key.split("/")
    plain = ["*" if part[:4] == "0000" or part[8:9] == "-" else part for part in directories]
    if name not in _FIXED:
        name = "snap-*.avro" if name.startswith("snap-") else "*." + name.rpartition(".")[2]
    return "/".join([*plain, name])


def is_numbered_head(key: str) -> bool:
    """Return whether a key is that of a HEAD after the first one, where HEAD is a log."""
    return "/heads/" in key


def newest_heads(files: Files) -> set[str]:
    """Return the newest HEADs of the lake and of its branches, where HEAD is a log."""
    numbered = sorted(filter(is_numbered_head, files))
    return set({key.rpartition("/")[0]: key for key in numbered}.values())


def damages_of(scene: Scene) -> Iterator[Damage]:
    """Yield each damage of one object, and of each directory."""
    newest = newest_heads(scene.files)
    for key in scene.in_order():
        body, what = scene.files[key], kind_of(key)
        what = f"the newest {what}" if key in newest else what
        yield Damage("lost", what, {key: None})
        yield Damage("truncated", what, {key: body[: len(body) // 2]})
        yield Damage("emptied", what, {key: b""})
        for old in scene.older(key):
            yield Damage("older", what, {key: old})
    for directory in DIRECTORIES:
        yield from _of_directory(scene, directory)


def _of_directory(scene: Scene, directory: str) -> Iterator[Damage]:
    prefix = f"{directory}/" if directory else ""
    now = {key: body for key, body in scene.files.items() if key.startswith(prefix)}
    if directory and now:
        yield Damage("lost", prefix, dict.fromkeys(now))
    for files in scene.steps[:-1]:
        older: dict[str, bytes | None] = {
            key: body
            for key, body in files.items()
            if key.startswith(prefix) and body != now.get(key)
        }
        newer: dict[str, bytes | None] = dict.fromkeys(key for key in now if key not in files)
        if older:
            yield Damage("copied over", prefix, older)
        if older or newer:
            yield Damage("restored", prefix, {**older, **newer})


def drawn(scene: Scene, choice: random.Random) -> Damage:
    """Draw a damage, first its kind and that of its object: a lake has more leaves than HEADs."""
    by_name: dict[str, dict[str, list[Damage]]] = {}
    for damage in damages_of(scene):
        by_name.setdefault(damage.how, {}).setdefault(damage.what, []).append(damage)
    by_what = by_name[choice.choice(sorted(by_name))]
    return choice.choice(by_what[choice.choice(sorted(by_what))])
