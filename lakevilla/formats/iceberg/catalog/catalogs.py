"""pyiceberg's catalogs by name: made when first asked for, and none may hang."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NotInstalledError
from requests.adapters import HTTPAdapter

from lakevilla.errors import InvalidOperation
from lakevilla.forked import lock

#: What is wrong with the properties, whenever they are tried.
_MISTAKES = (ValueError, TypeError, KeyError, ImportError, AttributeError, NotInstalledError)


class Catalogs:
    """Thread-safe.

    Parameters
    ----------
    given : Mapping
        By name, catalogs, or the properties that ``load_catalog`` makes one of.
    timeout_seconds : float
        How long one may take to be made, and a REST catalog to answer.
    """

    def __init__(
        self, given: Mapping[str, Catalog | Mapping[str, str]], timeout_seconds: float
    ) -> None:
        self._given = dict(given)
        self._timeout = timeout_seconds
        self._made: dict[str, Future[Catalog]] = {}
        self._lock = lock()

    def __getitem__(self, name: str) -> Catalog:
        """Raises ``InvalidOperation`` for one that is not known, or can never be made.

        Whatever else goes wrong is pyiceberg's to tell, or a ``TimeoutError``.
        """
        given = self._given.get(name)
        if given is None:
            raise InvalidOperation(
                f"the catalog {name!r} is none that this lake was connected with: connect with "
                f"catalogs={{{name!r}: ...}}"
            )
        with self._lock:
            made = self._made.get(name)
            if made is None:
                made = self._made[name] = Future()
                # A REST catalog asks its server as it is made, with no time limit: whoever
                # comes next waits for the same one, and no longer than this one does.
                threading.Thread(
                    target=self._make, args=(name, given, made), daemon=True, name="catalog"
                ).start()
        try:
            return made.result(self._timeout)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._timeout:g} seconds") from None
        except _MISTAKES as error:
            raise InvalidOperation(
                f"the catalog {name!r} can't be made of its properties ({error}): see pyiceberg's "
                "documentation of load_catalog"
            ) from error

    def _make(self, name: str, given: Catalog | Mapping[str, str], made: Future[Catalog]) -> None:
        try:
            found = given if isinstance(given, Catalog) else load_catalog(name, **given)
            _limit(found, self._timeout)
        except BaseException as error:
            with self._lock:
                self._made.pop(name, None)  # the next one tries again
            made.set_exception(error)
        else:
            made.set_result(found)


def _limit(catalog: Catalog, seconds: float) -> None:
    """Have a REST catalog's session give up: pyiceberg sets no time limit, and would hang."""
    session = getattr(catalog, "_session", None)
    for prefix, adapter in list(getattr(session, "adapters", {}).items()):
        if type(adapter) is HTTPAdapter and session is not None:
            session.mount(prefix, _Limited(seconds))


class _Limited(HTTPAdapter):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: Any, *given: Any, **named: Any) -> Any:
        if named.get("timeout") is None and len(given) < 2:
            named["timeout"] = self._seconds
        return super().send(request, *given, **named)
