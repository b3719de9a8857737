"""pyiceberg's ``FileIO`` over the library's store: its requests are retried and counted here.

Usable without LakeVilla's transactions, in any pyiceberg catalog:
``load_catalog(..., **{"py-io-impl": "lakevilla.formats.iceberg.catalog.fileio.StoreFileIO"})``.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import Self

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from lakevilla.clock import SystemClock
from lakevilla.errors import StoreError
from lakevilla.formats.iceberg.metadata.definition import place_of
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import ABSENT, ANY, Found, ObjectInfo, Refused, Stored
from lakevilla.store.effects import delete, get, put, stat
from lakevilla.store.runner import Runner

#: pyiceberg's properties, and the storage options with the same meaning.
_OPTIONS = {
    "s3.endpoint": "aws_endpoint",
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "s3.anonymous": "aws_skip_signature",
    "client.access-key-id": "aws_access_key_id",
    "client.secret-access-key": "aws_secret_access_key",
    "client.session-token": "aws_session_token",
    "client.region": "aws_region",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_token",
    "adls.tenant-id": "azure_storage_tenant_id",
    "adls.client-id": "azure_storage_client_id",
    "adls.client-secret": "azure_storage_client_secret",
}


def storage_options(properties: Properties) -> dict[str, str]:
    """Return the storage options that correspond to pyiceberg's properties."""
    found = {
        option: str(properties[name]) for name, option in _OPTIONS.items() if name in properties
    }
    if found.get("aws_endpoint", "").startswith("http://"):
        found["aws_allow_http"] = "true"
    return found


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
