from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.cli.commands import run
from minikafka.records.batch import ControlType, build_control_batch
from minikafka.records.message_set import Codec, Record, build_message_set

RECORDS = [
    Record(None, None, -1),
    Record(b"", b"", 5),
    Record("klíč".encode(), b"\xff\x00", 1_480_000_000_000),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "0.kafka"
    path.write_bytes(build_message_set(RECORDS, codec=Codec.GZIP, base_offset=7))
    return path


def dump(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    status = run(["log", "dump", *arguments])
    out, err = capfd.readouterr()
    return status, [json.loads(line) for line in out.splitlines()], err


def test_a_line_has_all_that_the_contract_names(capfd: pytest.CaptureFixture[str], file: Path) -> None:
    status, rows, err = dump(capfd, str(file))
    assert (status, err) == (0, "")
    assert rows == [
        {
            "offset": 7,
            "timestamp": None,
            "key": None,
            "value": None,
            "headers": [],
            "codec": "gzip",
            "magic": 1,
        },
        {"offset": 8, "timestamp": 5, "key": "", "value": "", "headers": [], "codec": "gzip", "magic": 1},
        {
            "offset": 9,
            "timestamp": 1_480_000_000_000,
            "key": "a2zDrcSN",
            "value": "/wA=",
            "headers": [],
            "codec": "gzip",
            "magic": 1,
        },
    ]


def test_magic_2_has_headers_and_marks_of_transactions(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "0.kafka"
    sent = Record(b"k", b"v", 5, (("name", b"\x01"), ("name", None)))
    mark = build_control_batch(
        ControlType.COMMIT,
        coordinator_epoch=0,
        producer_id=1,
        producer_epoch=0,
        timestamp_ms=6,
        base_offset=1,
    )
    path.write_bytes(build_message_set([sent], magic=2, codec=Codec.ZSTD) + mark)
    _, rows, err = dump(capfd, str(path))
    assert err == ""
    first = {"offset": 0, "timestamp": 5, "key": "aw==", "value": "dg==", "codec": "zstd", "magic": 2}
    assert rows[0] == {**first, "headers": [["name", "AQ=="], ["name", None]]}
    second = {"offset": 1, "timestamp": 6, "key": "AAAAAQ==", "value": "AAAAAAAA", "codec": "none"}
    assert rows[1] == {**second, "magic": 2, "headers": [], "control": True}


def test_text_decodes_keys_and_values(capfd: pytest.CaptureFixture[str], file: Path) -> None:
    _, rows, _ = dump(capfd, "--text", str(file))
    assert [(row["key"], row["value"]) for row in rows] == [(None, None), ("", ""), ("klíč", "\\xff\x00")]


def test_several_files_come_one_after_the_other(capfd: pytest.CaptureFixture[str], file: Path) -> None:
    _, rows, _ = dump(capfd, str(file), str(file))
    assert [row["offset"] for row in rows] == [7, 8, 9, 7, 8, 9]


def test_damage_is_told_on_stderr_with_its_position_and_what_is_whole_is_printed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    whole = build_message_set(RECORDS)
    torn = tmp_path / "0.kafka"
    torn.write_bytes(whole + build_message_set(RECORDS, base_offset=3)[:20])
    status, rows, err = dump(capfd, str(torn))
    assert status == 1
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert f"{torn}: 20 bytes from position {len(whole)}" in err
    assert err.count("\n") == 1


def test_a_changed_byte_is_told_and_the_rest_is_printed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = bytearray(build_message_set(RECORDS))
    data[20] ^= 1
    file = tmp_path / "0.kafka"
    file.write_bytes(data)
    status, rows, err = dump(capfd, str(file))
    assert status == 1
    assert [row["offset"] for row in rows] == [1, 2]
    assert "from position 0" in err


@pytest.mark.parametrize("name", ["nosuch.log", "."])
def test_what_is_no_file_is_bad_input(capfd: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    status, _, err = dump(capfd, str(tmp_path / name))
    assert status == 2
    assert err.count("\n") == 1
