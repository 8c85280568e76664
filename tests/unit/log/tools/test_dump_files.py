"""The other files of a log, as ``minikafka log dump`` shows them."""

from __future__ import annotations

import struct

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import RealFiles
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.tools.dump import Damage
from minikafka.log.tools.dump_files import FileKind, file_rows, kind_of
from tests.support.logs import DATA

TIME_INDEX = bytes.fromhex(
    "0000015896e09b20000000340000015896e11ff0000000560000015896e123d80000005700000158ca5f680000000078"
)
"""Of ``segments/magic1-none``, as 0.10.1.1 wrote it."""
TRANSACTIONS = bytes.fromhex(
    "00000000000000000001000000000000001f000000000000003d000000000000003e"
    "00000000000000000003000000000000004300000000000000530000000000000054"
)
"""Of ``segments/magic2-transactions``, as 3.9.1 wrote it."""
SNAPSHOT = bytes.fromhex(
    "000109a5f7c300000003"
    "00000000000000010000000000b100000000000000cb00000077000001a1fca4de3800000000ffffffffffffffff"
    "0000000000000002000000000009000000000000004c00000004000001a1fca4de2600000000ffffffffffffffff"
    "0000000000000003000000000009000000000000005100000004000001a1fca4de2c00000000ffffffffffffffff"
)
"""Its producers at offset 205."""


def rows_of(name: str, data: bytes) -> list[object]:
    files = MemoryFiles()
    files.open(name, create=True).write_at(0, data)
    return list(file_rows(files, name))


@pytest.mark.parametrize(
    ("name", "kind", "offset"),
    [
        ("00000000000000000042.log", FileKind.SEGMENT, 42),
        ("d/00000000042.kafka", FileKind.SEGMENT, 42),
        ("00000000042.kafka.cleaned", FileKind.SEGMENT, 42),
        ("00000000000000000042.log.deleted", FileKind.SEGMENT, 42),
        ("00000000000000000042.log.swap", FileKind.SEGMENT, 42),
        ("00000000042.kafka.2.corrupt", FileKind.SEGMENT, 42),
        ("00000000042.index", FileKind.OFFSET_INDEX, 42),
        ("00000000000000000042.index.deleted", FileKind.OFFSET_INDEX, 42),
        ("00000000042.timeindex", FileKind.TIME_INDEX, 42),
        ("00000000000000000042.txnindex", FileKind.TRANSACTION_INDEX, 42),
        ("00000000000000000205.snapshot", FileKind.PRODUCERS, 205),
        ("leader-epoch-checkpoint", FileKind.EPOCHS, None),
        ("recovery-point-offset-checkpoint", FileKind.CHECKPOINT, None),
        ("replication-offset-checkpoint", FileKind.CHECKPOINT, None),
        ("cleaner-offset-checkpoint", FileKind.CHECKPOINT, None),
        ("log-start-offset-checkpoint", FileKind.CHECKPOINT, None),
        ("meta.properties", FileKind.PROPERTIES, None),
        ("partition.metadata", FileKind.PROPERTIES, None),
        ("magic1-none.log", FileKind.SEGMENT, None),
        ("whatever", FileKind.SEGMENT, None),
        ("99999999999999999999.log", FileKind.SEGMENT, None),
    ],
)
def test_a_name_tells_what_a_file_is(name: str, kind: FileKind, offset: int | None) -> None:
    assert kind_of(name) == (kind, offset)


def test_offset_index_rows_have_offsets_if_the_name_has_one() -> None:
    data = (DATA / "log-index" / "magic1-none.index").read_bytes()
    rows = rows_of("00000001000.index", data)
    assert rows[0] == {"offset": 1032, "relative_offset": 32, "position": 1857}
    assert len(rows) == len(data) // 8


def test_an_index_whose_name_has_no_offset_gives_relative_ones_only() -> None:
    (row,) = rows_of("some.index", struct.pack(">ii", 5, 700))
    assert row == {"offset": None, "relative_offset": 5, "position": 700}


def test_a_time_index_gives_times_and_offsets() -> None:
    rows = rows_of("00000001000.timeindex", TIME_INDEX)
    assert rows[0] == {"timestamp": 1480000052000, "offset": 1052, "relative_offset": 52}
    assert len(rows) == 4


@pytest.mark.parametrize("name", ["00000000000.index", "00000000000.timeindex"])
def test_room_taken_beforehand_is_no_entry(name: str) -> None:
    assert len(rows_of(name, struct.pack(">qi", 5 << 32, 7) + bytes(10_240))) <= 2
    assert rows_of(name, bytes(10_240)) == []


@pytest.mark.parametrize(("name", "size"), [("0.index", 8), ("0.timeindex", 12), ("0.txnindex", 34)])
def test_an_entry_that_is_cut_off_is_damage(name: str, size: int) -> None:
    *rows, damage = rows_of(name, bytes([1]) * (size + 5))
    assert len(rows) == 1
    assert damage == Damage(name, size, 5, f"incomplete entry, expected {size} bytes")


def test_a_transaction_index_gives_the_aborted_transactions() -> None:
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    assert rows_of("00000000000000000000.txnindex", TRANSACTIONS) == [
        dict(zip(names, (0, 1, 31, 61, 62), strict=True)),
        dict(zip(names, (0, 3, 67, 83, 84), strict=True)),
    ]


def test_a_snapshot_gives_its_producers() -> None:
    rows = rows_of("00000000000000000205.snapshot", SNAPSHOT)
    assert rows[0] == {
        "version": 1,
        "producer_id": 1,
        "producer_epoch": 0,
        "last_sequence": 177,
        "last_offset": 203,
        "offset_delta": 119,
        "timestamp": 1795240025656,
        "coordinator_epoch": 0,
        "current_txn_first_offset": None,
    }
    assert len(rows) == 3


def test_a_changed_byte_of_a_snapshot_is_damage() -> None:
    changed = bytearray(SNAPSHOT)
    changed[-1] ^= 1
    *rows, damage = rows_of("00000000000000000205.snapshot", bytes(changed))
    assert len(rows) == 3
    assert isinstance(damage, Damage)
    assert (damage.position, damage.length) == (6, len(SNAPSHOT) - 6)
    assert "checksum" in damage.reason


@pytest.mark.parametrize("data", [b"", SNAPSHOT[:9], SNAPSHOT[:-1], b"\0\2" + SNAPSHOT[2:], b"{}\n" * 10])
def test_invalid_snapshot_is_reported(data: bytes) -> None:
    with pytest.raises(StorageError, match=r"0\.snapshot is no"):
        rows_of("0.snapshot", data)


def test_leader_epochs_come_in_their_order() -> None:
    rows = rows_of("leader-epoch-checkpoint", b"0\n2\n0 0\n3 4711\n")
    assert rows == [{"epoch": 0, "start_offset": 0}, {"epoch": 3, "start_offset": 4711}]
    assert rows_of("leader-epoch-checkpoint", b"") == []


@pytest.mark.parametrize(
    "text",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0\n",
        b"0\n1\nx 0\n",
        b"0\n2\n1 5\n1 6\n",
        b"0\n2\n1 5\n2 4\n",
        b"0\n1\n-1 0\n",
        b"0\n1\n0 -1\n",
        b"\xff\n",
    ],
)
def test_invalid_leader_epoch_file_is_reported(text: bytes) -> None:
    with pytest.raises(StorageError, match="leader-epoch-checkpoint is not a leader epoch file"):
        rows_of("leader-epoch-checkpoint", text)


@pytest.mark.parametrize("name", ["recovery-point", "replication", "cleaner"])
def test_a_real_brokers_checkpoints_are_read(name: str) -> None:
    path = DATA / "log-dir" / "data" / f"{name}-offset-checkpoint"
    lines = path.read_text().split("\n")[2:-1]
    found = [f"{row['topic']} {row['partition']} {row['offset']}" for row in rows_at(str(path))]
    assert found == lines


def rows_at(path: str) -> list[dict[str, object]]:
    rows = list(file_rows(RealFiles(), path))
    assert not any(isinstance(row, Damage) for row in rows)
    return [dict(row) for row in rows if not isinstance(row, Damage)]


def test_properties_are_one_row() -> None:
    assert rows_at(str(DATA / "log-dir" / "data" / "meta.properties")) == [{"broker.id": "3", "version": "0"}]
    assert rows_of("partition.metadata", b"version: 0\ntopic_id: abc==\n") == [
        {"version": "0", "topic_id": "abc=="}
    ]


def test_invalid_properties_file_is_reported() -> None:
    with pytest.raises(StorageError, match=r"not a properties file: meta\.properties='line 1'"):
        rows_of("meta.properties", b"nonsense\n")
