"""Parts of messages."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import FileSlice, RealFiles
from minikafka.wire.frame_parts import Part, buffer_of, join, part_size, total_size


def test_part_sizes_are_in_bytes(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "f"), create=True)
    try:
        parts: list[Part] = [b"ab", bytearray(3), memoryview(array("q", [1, 2])), FileSlice(file, 0, 7)]
        assert [part_size(part) for part in parts] == [2, 3, 16, 7]
        assert total_size(parts) == 28
    finally:
        file.close()


def test_buffer_of_memory_is_a_view_and_of_none_is_empty() -> None:
    data = bytearray(b"abc")
    view = buffer_of(data)
    data[0] = ord("x")
    assert bytes(view) == b"xbc"
    assert bytes(buffer_of(None)) == b""


def test_a_slice_of_a_file_is_read(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "f"), create=True)
    try:
        file.write_at(0, b"0123456789")
        assert join([b"<", FileSlice(file, 3, 4), b">"]) == b"<3456>"
    finally:
        file.close()


def test_a_file_shorter_than_its_slice_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "short"), create=True)
    try:
        file.write_at(0, b"012")
        with pytest.raises(StorageError, match=r"short ends 2 bytes before the end of a slice"):
            buffer_of(FileSlice(file, 1, 4))
    finally:
        file.close()
