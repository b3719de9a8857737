"""The time and the memory that an input may take."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

#: An input may take a second of the processor's time, and 256 MB.
MOST_SECONDS, MOST_BYTES = 1.0, 256 << 20
_STATUS = Path("/proc/self/status")
_FORGET = Path("/proc/self/clear_refs")


class Meter:
    """The processor's time and the growth of memory within a block."""

    def __enter__(self) -> Meter:
        _FORGET.write_text("5")  # begin the peak anew
        self._before = _resident("VmRSS")
        self._began = time.process_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.process_time() - self._began
        self.bytes = max(0, _resident("VmHWM") - self._before)

    @property
    def excess(self) -> str:
        """What was exceeded, or ``""``."""
        if self.seconds > MOST_SECONDS:
            return f"{self.seconds:.1f} s"
        return f"{self.bytes >> 20} MB" if self.bytes > MOST_BYTES else ""


def _resident(name: str) -> int:
    text = _STATUS.read_text()
    return int(text.partition(f"{name}:")[2].split(None, 1)[0]) << 10
