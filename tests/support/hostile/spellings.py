"""Paths by which an object of the store could name a file beyond its lake."""

from __future__ import annotations

import os
import random
from urllib.parse import quote


def hostile_path(draw: random.Random, target: str, within: str) -> str:
    """Return a spelling of ``target``, an absolute path, as seen from the directory ``within``."""
    start = draw.choice([_relative, _absolute, _absolute, _uri, _uri, _elsewhere])
    path = start(draw, target, within)
    for _ in range(draw.choice([0, 0, 0, 1, 2])):
        path = draw.choice(_CHANGES)(draw, path)
    return path


def _relative(draw: random.Random, target: str, within: str) -> str:
    path = os.path.relpath(target, within)
    return draw.choice(["", "./", "x/../", "data/../"]) + path


def _absolute(draw: random.Random, target: str, within: str) -> str:
    return draw.choice(["", "/", "//", "/./"]) + target


def _uri(draw: random.Random, target: str, within: str) -> str:
    start = draw.choice(
        [
            "file://",
            "file:",
            "FILE://",
            "file://localhost",
            "file:////",
            "file://127.0.0.1",
            "File:/",
        ]
    )
    return start + target


def _elsewhere(draw: random.Random, target: str, within: str) -> str:
    name = os.path.basename(target)
    return draw.choice(
        [
            f"s3://other/{name}",
            f"http://127.0.0.1:9/{name}",
            f"\\\\server\\share\\{name}",
            f"//server/share/{name}",
            f"memory://other/{name}",
            f"link/{name}",
            f"~/{name}",
            f"$HOME/{name}",
            f"lakevilla://{name}",
            f"catalog://other/{name}",
            f"{os.path.relpath(os.path.dirname(target), within)}/*",
            "/etc/passwd",
            "/proc/self/environ",
        ]
    )


def _encoded(draw: random.Random, path: str) -> str:
    return path.replace("..", draw.choice(["%2e%2e", "%2E.", ".%2e", "%252e%252e"]))


def _slashes(draw: random.Random, path: str) -> str:
    return path.replace("/", draw.choice(["%2f", "%2F", "\\", "//", "%5c", "/./", "\u2215"]))


def _dots(draw: random.Random, path: str) -> str:
    return path.replace("..", draw.choice(["..;", "\u2025", "...", ".. ", "..\u200b", "..%00"]))


def _cut(draw: random.Random, path: str) -> str:
    at = draw.randrange(len(path) + 1)
    return path[:at] + draw.choice(["\0", "\n", "%00", "\r\n", "\x1b[2J", "\ud800"]) + path[at:]


def _behind(draw: random.Random, path: str) -> str:
    return path + draw.choice(["?x=1", "#x", "/", "/.", "/..", " ", ";type=a", "%"])


def _long(draw: random.Random, path: str) -> str:
    return "x/../" * draw.choice([10, 400]) + path


def _quoted(draw: random.Random, path: str) -> str:
    return quote(path, safe=draw.choice(["", "/"]))


_CHANGES = (_encoded, _encoded, _slashes, _dots, _cut, _behind, _long, _quoted)
