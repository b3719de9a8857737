"""Files in memory, as pyiceberg reads and writes them."""

from __future__ import annotations

import io
from hashlib import blake2b
from typing import Any

from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream


class MemoryInput(InputFile):
    """Bytes at hand."""

    def __init__(self, location: str, body: bytes) -> None:
        super().__init__(location)
        self._body = body

    def __len__(self) -> int:
        return len(self._body)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._body)


class MemoryOutput(OutputFile):
    """Keeps in ``body`` what was written, once the stream is closed."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.body = b""

    def __len__(self) -> int:
        return len(self.body)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        return MemoryInput(self.location, self.body)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self)


def steady(writer: Any, output: MemoryOutput) -> bytes:
    """What pyiceberg's ``writer`` wrote, with block markers that follow from the name.

    pyiceberg draws the marker between blocks at random. Names are as unique as a nonce, so a
    marker made of one is as unlikely to occur in a block; and the same commit then gives the
    same bytes.
    """
    marker: bytes = writer._writer.sync_bytes
    digest = blake2b(output.location.encode(), digest_size=len(marker)).digest()
    return output.body.replace(marker, digest)


class _Stream(io.BytesIO):
    def __init__(self, output: MemoryOutput) -> None:
        super().__init__()
        self._output = output

    def close(self) -> None:
        if not self.closed:
            self._output.body = self.getvalue()
        super().close()
