"""A decoder of Avro values that never reads beyond its bytes."""

from __future__ import annotations

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder

#: At most so many numbers are read by one call, so no call goes further beyond the end.
_AT_ONCE = 512
#: A number has at most ten bytes, and ends at a zero.
_BEHIND = bytes(_AT_ONCE + 16)


class BoundedDecoder(BinaryDecoder):
    """pyiceberg's compiled decoder, with each length compared to the bytes that are left.

    It compares none itself: where a length or a count is wrong, it returns what the process has in
    memory behind the bytes, or ends the process. The methods raise ``EOFError``.
    """

    # docs/upstream.md, "A wrong length in a block reads the memory of the process"

    def __init__(self, content: bytes) -> None:
        self._fast = new_decoder(content + _BEHIND)
        self._size = len(content)
        self.tell = self._fast.tell  # type: ignore[method-assign]

    def tell(self) -> int:
        return self._fast.tell()

    def read(self, n: int) -> bytes:
        self._need(n)
        return self._fast.read(n)

    def read_boolean(self) -> bool:
        self._need(1)
        return self._fast.read_boolean()

    def read_int(self) -> int:
        self._need(1)
        return self._fast.read_int()

    def read_ints(self, count: int) -> tuple[int, ...]:
        self._need(count)  # each takes a byte at least
        if count <= _AT_ONCE:
            return self._fast.read_ints(count)
        found = self._fast.read_ints(_AT_ONCE)
        for begin in range(_AT_ONCE, count, _AT_ONCE):
            self._need(1)
            found += self._fast.read_ints(min(_AT_ONCE, count - begin))
        return found

    def read_int_bytes_dict(self, count: int, dest: dict[int, bytes]) -> None:
        self._need(count)
        read_int, read = self._fast.read_int, self._fast.read
        for _ in range(count):
            key, length = read_int(), read_int()
            self._need(length)
            dest[key] = read(length)

    def read_bytes(self) -> bytes:
        length = self.read_int()
        self._need(length)
        return self._fast.read(length)

    def read_utf8(self) -> str:
        return self.read_bytes().decode()

    def read_float(self) -> float:
        self._need(4)
        return self._fast.read_float()

    def read_double(self) -> float:
        self._need(8)
        return self._fast.read_double()

    def skip(self, n: int) -> None:
        self._need(n)
        self._fast.skip(n)

    def skip_int(self) -> None:
        self._need(1)
        self._fast.skip_int()

    def skip_boolean(self) -> None:
        self.skip(1)

    def skip_float(self) -> None:
        self.skip(4)

    def skip_double(self) -> None:
        self.skip(8)

    def skip_bytes(self) -> None:
        self.skip(self.read_int())

    def skip_utf8(self) -> None:
        self.skip_bytes()

    def check_end(self) -> None:
        """Raise ``ValueError`` unless all bytes were read."""
        if self._fast.tell() != self._size:
            raise ValueError(
                f"its records end at byte {self._fast.tell()} of a block of {self._size}"
            )

    def _need(self, count: int) -> None:
        at = self._fast.tell()
        if not 0 <= count <= self._size - at:
            raise EOFError(f"{count} bytes are expected at byte {at} of a block of {self._size}")
