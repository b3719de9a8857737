"""pyiceberg's ``FileIO`` over the library's store: its requests are retried and counted here.

Usable without LakeVilla's transactions, in any pyiceberg catalog:
``load_catalog(..., **{"py-io-impl": "lakevilla.formats.iceberg.catalog.fileio.StoreFileIO"})``.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from lakevilla.clock import SystemClock
from lakevilla.errors import StoreError
from lakevilla.formats.iceberg.metadata.definition import place_of
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.endpoints import PYICEBERG
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import ABSENT, ANY, Found, ObjectInfo, Refused, Stored
from lakevilla.store.effects import delete, get, put, stat
from lakevilla.store.runner import Runner

#: The parts of a connection string of Azure, and the properties with the same meaning.
_CONNECTION = {
    "AccountName": "adls.account-name",
    "AccountKey": "adls.account-key",
    "SharedAccessSignature": "adls.sas-token",
}


def storage_options(properties: Properties) -> dict[str, str]:
    """Return the storage options that correspond to pyiceberg's properties."""
    connection = _connection(str(properties.get("adls.connection-string", "")))
    given = {
        **{name: connection[part] for part, name in _CONNECTION.items() if part in connection},
        **_of_one_host(properties),
        **properties,
    }
    found = {option: str(given[name]) for name, option in PYICEBERG.items() if name in given}
    endpoint = _azure_endpoint(given, connection)
    if endpoint is not None:
        found["azure_storage_endpoint"] = endpoint
    if found.get("aws_endpoint", "").startswith("http://"):
        found["aws_allow_http"] = "true"
    if found.get("azure_storage_endpoint", "").startswith("http://"):
        found["azure_allow_http"] = "true"
    if found.get("google_base_url", "").startswith("http://"):
        found["google_allow_http"] = "true"
    return found


def _connection(text: str) -> dict[str, str]:
    """Return the parts of a connection string."""
    return dict(part.strip().partition("=")[::2] for part in text.split(";") if part.strip())


def _of_one_host(properties: Properties) -> dict[str, str]:
    """Return the properties that a catalog implies by a token for one account's host."""
    prefix = "adls.sas-token."
    return {
        name: value
        for spelled, token in properties.items()
        if spelled.startswith(prefix)
        for name, value in (
            ("adls.account-name", spelled.removeprefix(prefix).partition(".")[0]),
            ("adls.sas-token", str(token)),
        )
    }


def _azure_endpoint(given: Properties, connection: Mapping[str, str]) -> str | None:
    account = given.get("adls.account-name")
    if "adls.account-host" in given:
        return f"https://{given['adls.account-host']}"
    if "adls.blob-storage-authority" in given:
        scheme = given.get("adls.blob-storage-scheme", "https")
        authority = str(given["adls.blob-storage-authority"])
        joined = f"{account}{authority}" if authority.startswith(".") else f"{authority}/{account}"
        return f"{scheme}://{joined}"
    if "EndpointSuffix" in connection and "BlobEndpoint" not in connection:
        return f"https://{account}.blob.{connection['EndpointSuffix']}"
    return connection.get("BlobEndpoint")


def runner_for(location: str, properties: Properties) -> Runner:
    """Return a runner for requests to the store that holds ``location``."""
    settings = Settings()
    store = open_store(location, storage_options(properties), settings=settings)
    return Runner(store, Ids(SystemClock()), settings)


class StoreFileIO(FileIO):
    """Files of an object store, or of this machine.

    Parameters
    ----------
    properties : Mapping
        pyiceberg's: credentials and the endpoint, as for its other implementations.
    runner : Runner, optional
        Runs the requests; without one it is made from the properties at first use.
    """

    def __init__(self, properties: Properties = EMPTY_DICT, runner: Runner | None = None) -> None:
        super().__init__(properties)
        self._runner = runner

    def runner(self, location: str) -> Runner:
        """Return the runner of the requests; one serves all locations."""
        if self._runner is None:
            self._runner = runner_for(place_of(location).store.uri or "/", self.properties)
        # pyiceberg chooses the locations of its requests: no object of a lake names them to the
        # store.
        if isinstance(self._runner.store, LakeStore):
            self._runner.store.name(place_of(location).uri)
        return self._runner

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self.runner(location))

    def new_output(self, location: str) -> OutputFile:
        return _Output(location, self.runner(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        uri = location if isinstance(location, str) else location.location
        self.runner(uri).run(delete(place_of(uri).uri))

    def __getstate__(self) -> dict[str, object]:
        # A runner has threads: another process makes its own runner.
        return {"properties": self.properties, "_runner": None}


class _Input(InputFile):
    def __init__(self, location: str, runner: Runner) -> None:
        super().__init__(location)
        self._key = place_of(location).uri
        self._runner = runner

    def __len__(self) -> int:
        info = self._runner.run(stat(self._key))
        if not isinstance(info, ObjectInfo):
            raise FileNotFoundError(self.location)
        return info.size

    def exists(self) -> bool:
        return isinstance(self._runner.run(stat(self._key)), ObjectInfo)

    def open(self, seekable: bool = True) -> InputStream:
        outcome = self._runner.run(get(self._key))
        if not isinstance(outcome, Found):
            raise FileNotFoundError(self.location)
        return io.BytesIO(outcome.body)


class _Output(OutputFile):
    def __init__(self, location: str, runner: Runner) -> None:
        super().__init__(location)
        self._key = place_of(location).uri
        self._runner = runner

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._runner)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Upload(self.location, self._key, self._runner, overwrite)


class _Upload(io.BytesIO):
    """An upload that is stored when it is closed, unless the block that writes it fails."""

    def __init__(self, location: str, key: str, runner: Runner, overwrite: bool) -> None:
        super().__init__()
        self._location, self._key, self._runner = location, key, runner
        self._overwrite = overwrite
        self._failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._failed = kind is not None
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        body = self.getvalue()
        super().close()
        if self._failed:
            return
        outcome = self._runner.run(put(self._key, body, ANY if self._overwrite else ABSENT))
        if isinstance(outcome, Refused):
            raise FileExistsError(self._location)
        if not isinstance(outcome, Stored):
            raise StoreError(
                f"could not find out whether {self._location} is stored ({outcome.reason}): "
                "check, and try again"
            )
