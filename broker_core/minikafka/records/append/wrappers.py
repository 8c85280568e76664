"""The wrappers of a produced set, many at a time: a request of megabytes may have hundreds of thousands.

They are described by a table with a row for each (``kernels.write``), without Python objects. They are
decompressed in groups with little content, and one call of a kernel checks or converts a group. A wrapper
with more content is a group by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from minikafka.base.errors import BrokerError
from minikafka.records import kernels
from minikafka.records.format.checksums import CRC32_TABLES
from minikafka.records.format.compression import Codec, ContentBudget, content_bound, decompress
from minikafka.records.kernels import decode_status

GROUP = 256
"""The maximum number of wrappers in a group."""
GROUP_BYTES = 1 << 20
"""The maximum content of a group of several wrappers."""
_CODECS = tuple(Codec)


class Wrappers:
    """The wrappers of a set, in their order: a row for each, and totals.

    ``count``: messages. ``gaps``: wrappers whose relative inner offsets are not 0, 1, 2 …. ``absolute``:
    wrappers of magic 0, which hold ``absolute_bytes``. ``mistimed``: wrappers with another timestamp than the
    largest of their messages. ``codecs``: a bit for each codec.
    """

    __slots__ = ("absolute", "absolute_bytes", "codecs", "count", "gaps", "mistimed", "rows")

    def __init__(self, rows: NDArray[np.int64], *totals: int) -> None:
        self.rows = rows
        self.count, self.gaps, self.absolute, self.absolute_bytes, self.mistimed, self.codecs = totals

    @classmethod
    def of(cls, groups: list[NDArray[np.int64]], state: NDArray[np.int64]) -> Wrappers:
        """Return the wrappers of some groups, which were counted in ``state``."""
        if not groups:
            return NO_WRAPPERS
        write = kernels.write
        rows = groups[0] if len(groups) == 1 else np.concatenate(groups)
        return cls(rows, *state[write.WRAPPED : write.CODECS + 1].tolist())

    @classmethod
    def of_one(
        cls, *, size: int, magic: int, codec: Codec, count: int, max_timestamp_ms: int, content_bytes: int
    ) -> Wrappers:
        """Return a wrapper that fills the set, with inner offsets 0, 1, 2 … and the right timestamp."""
        row = [0, size, magic, codec, 0, max_timestamp_ms, count, 1, content_bytes]
        absolute = 0 if magic else 1
        return cls(
            np.array([row], dtype=np.int64), count, 0, absolute, absolute * content_bytes, 0, 1 << codec
        )

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, field: int) -> NDArray[np.int64]:
        """Return a field of all rows."""
        column: NDArray[np.int64] = self.rows[:, field]
        return column

    def moved(self, rows: NDArray[np.int64]) -> Wrappers:
        """Return a copy with other positions and sizes."""
        totals = (self.count, self.gaps, self.absolute, self.absolute_bytes, self.mistimed, self.codecs)
        return Wrappers(rows, *totals)

    def run_from(self, number: int) -> NDArray[np.int64]:
        """Return the rows of this wrapper and of those directly after it, at most ``GROUP``."""
        write = kernels.write
        rows = self.rows[number : number + GROUP]
        ends = rows[:, write.WRAPPER_AT] + rows[:, write.WRAPPER_SIZE]
        gaps = np.flatnonzero(ends[:-1] != rows[1:, write.WRAPPER_AT])
        return rows[: gaps[0] + 1] if gaps.size else rows

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of messages of each wrapper."""
        counts = np.ascontiguousarray(self.column(kernels.write.WRAPPER_COUNT))
        counts.flags.writeable = False
        return counts

    def with_gaps(self) -> NDArray[np.intp]:
        """Return the numbers of the wrappers whose relative inner offsets are not 0, 1, 2 …"""
        write = kernels.write
        return np.flatnonzero(
            (self.column(write.WRAPPER_FORMAT) == 1) & (self.column(write.WRAPPER_CONSECUTIVE) == 0)
        )

    def stamp(self, data: NDArray[np.uint8]) -> None:
        """Give the wrappers of magic 1 the largest timestamp of their messages."""
        kernels.write.stamp_wrappers(data, CRC32_TABLES, self.rows.reshape(-1))


def survey(data: NDArray[np.uint8], state: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of the consecutive wrappers at POSITION, at most ``GROUP``."""
    write = kernels.write
    rows = np.empty(GROUP * write.WRAPPER_FIELDS, dtype=np.int64)
    found = write.survey_wrappers(data, CRC32_TABLES, state, rows)
    return rows[: found * write.WRAPPER_FIELDS].reshape(found, write.WRAPPER_FIELDS)


def memory_to_open(view: memoryview, rows: NDArray[np.int64], max_content_bytes: int) -> int:
    """Return the maximum memory of ``open_group``."""
    _, codec, value = next(_values(view, rows[:1]))
    return GROUP_BYTES if value is None else max(GROUP_BYTES, content_bound(codec, value, max_content_bytes))


def open_group(
    view: memoryview, rows: NDArray[np.int64], max_content_bytes: int, budget: ContentBudget | None = None
) -> tuple[memoryview, NDArray[np.int64]]:
    """Decompress the first wrappers: at least one, and as many as have at most ``GROUP_BYTES`` together.

    Return their concatenated content, and the end of each in it.

    Raises CORRUPT_MESSAGE if the first cannot be decompressed, or has more than ``max_content_bytes``;
    BudgetExceeded.
    """
    contents: list[memoryview] = []
    ends: list[int] = []
    size = 0
    for position, codec, value in _values(view, rows):
        try:
            if value is None:
                raise decode_status.corrupt("the compressed message has no value", position)
            room = min(max_content_bytes, GROUP_BYTES - size) if contents else max_content_bytes
            content = decompress(codec, value, room, budget)
        except BrokerError as error:
            if contents:
                break  # too large for this group, or an error that the next group reports
            raise error if value is None else decode_status.corrupt(error.detail, position) from None
        contents.append(content)
        size += len(content)
        ends.append(size)
        if size >= GROUP_BYTES:
            break
    where = np.array(ends, dtype=np.int64)
    where.flags.writeable = False
    return contents[0] if len(contents) == 1 else memoryview(b"".join(contents)), where


def _values(view: memoryview, rows: NDArray[np.int64]) -> Iterator[tuple[int, Codec, memoryview | None]]:
    """Yield position, codec and compressed content of each wrapper."""
    write = kernels.write
    for position, size, _, codec, value_at in rows[:, : write.WRAPPER_VALUE + 1].tolist():
        value = view[position + value_at : position + size] if value_at >= 0 else None
        yield position, _CODECS[codec], value


NO_WRAPPERS = Wrappers(np.zeros((0, 16), dtype=np.int64), 0, 0, 0, 0, 0, 0)
"""The wrappers of a set without any: no row, and room for every field. (It does not load the kernels.)"""
