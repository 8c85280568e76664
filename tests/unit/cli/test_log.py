from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pytest

from minikafka.records.format.batch import ControlType, build_control_batch
from minikafka.records.format.message_set import Codec, Record, build_message_set
from tests.support.command_line import CommandLine

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


def dump(cli: CommandLine, *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    status = cli.run("log", "dump", *arguments)
    return status, [json.loads(line) for line in cli.out.split("\n") if line], cli.err


def test_a_line_has_all_that_the_contract_names(cli: CommandLine, file: Path) -> None:
    status, rows, err = dump(cli, str(file))
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


def test_magic_2_has_headers_and_marks_of_transactions(cli: CommandLine, tmp_path: Path) -> None:
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
    _, rows, err = dump(cli, str(path))
    assert err == ""
    first = {"offset": 0, "timestamp": 5, "key": "aw==", "value": "dg==", "codec": "zstd", "magic": 2}
    assert rows[0] == {**first, "headers": [["name", "AQ=="], ["name", None]]}
    second = {"offset": 1, "timestamp": 6, "key": "AAAAAQ==", "value": "AAAAAAAA", "codec": "none"}
    assert rows[1] == {**second, "magic": 2, "headers": [], "control": True}


def test_text_decodes_keys_and_values(cli: CommandLine, file: Path) -> None:
    _, rows, _ = dump(cli, "--text", str(file))
    assert [(row["key"], row["value"]) for row in rows] == [(None, None), ("", ""), ("klíč", "\\xff\x00")]


def test_several_files_come_one_after_the_other(cli: CommandLine, file: Path) -> None:
    _, rows, _ = dump(cli, str(file), str(file))
    assert [row["offset"] for row in rows] == [7, 8, 9, 7, 8, 9]


def test_damage_goes_to_stderr_with_position_and_rest_is_printed(cli: CommandLine, tmp_path: Path) -> None:
    whole = build_message_set(RECORDS)
    torn = tmp_path / "0.kafka"
    torn.write_bytes(whole + build_message_set(RECORDS, base_offset=3)[:20])
    status, rows, err = dump(cli, str(torn))
    assert status == 1
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert f"{torn}: 20 bytes from position {len(whole)}" in err
    assert err.count("\n") == 1


def test_a_changed_byte_is_told_and_the_rest_is_printed(cli: CommandLine, tmp_path: Path) -> None:
    data = bytearray(build_message_set(RECORDS))
    data[20] ^= 1
    file = tmp_path / "0.kafka"
    file.write_bytes(data)
    status, rows, err = dump(cli, str(file))
    assert status == 1
    assert [row["offset"] for row in rows] == [1, 2]
    assert "from position 0" in err


@pytest.mark.parametrize("name", ["nosuch.log", "."])
def test_what_is_no_file_is_bad_input(cli: CommandLine, tmp_path: Path, name: str) -> None:
    status, _, err = dump(cli, str(tmp_path / name))
    assert status == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", [True, False])
def test_a_line_is_json_whatever_the_bytes_are(cli: CommandLine, tmp_path: Path, text: bool) -> None:
    strange = bytes(range(256)) + '"\\\u2028\U0001f600\ud800'.encode("utf-8", "surrogatepass")
    name = '"\\\n\t\x00\u2028'
    sent = [Record(strange, strange, 5, ((name, strange), ("", None))), Record(None, b"")]
    path = tmp_path / "0.kafka"
    path.write_bytes(build_message_set(sent, magic=2))
    status, rows, _ = dump(cli, *(["--text"] if text else []), str(path))
    shown = strange.decode("utf-8", "backslashreplace") if text else base64.b64encode(strange).decode()
    assert status == 0
    assert (rows[0]["key"], rows[0]["value"]) == (shown, shown)
    assert rows[0]["headers"] == [[name, shown], ["", None]]
    assert (rows[1]["key"], rows[1]["value"], rows[1]["headers"]) == (None, "", [])


def test_an_index_gives_a_line_an_entry(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "00000000100.index"
    path.write_bytes(struct.pack(">iiii", 5, 700, 9, 1400) + bytes(800))
    assert dump(cli, str(path)) == (
        0,
        [
            {"offset": 105, "relative_offset": 5, "position": 700},
            {"offset": 109, "relative_offset": 9, "position": 1400},
        ],
        "",
    )


def test_file_with_wrong_name_is_reported_and_next_is_printed(cli: CommandLine, tmp_path: Path) -> None:
    wrong, right = tmp_path / "0.snapshot", tmp_path / "leader-epoch-checkpoint"
    wrong.write_bytes(b"nonsense")
    right.write_bytes(b"0\n1\n3 7\n")
    status, rows, err = dump(cli, str(wrong), str(right))
    assert (status, rows) == (1, [{"epoch": 3, "start_offset": 7}])
    assert err.startswith(f"minikafka: {wrong} is not a producer snapshot")
    assert err.count("\n") == 1


def test_verify_prints_a_summary_in_place_of_records(cli: CommandLine, file: Path) -> None:
    status, rows, err = dump(cli, "--verify", str(file), str(file))
    assert (status, err) == (0, "")
    assert [(row["kind"], row["records"], row["codecs"]) for row in rows] == [("segment", 3, ["gzip"])] * 2
    assert (rows[0]["first_offset"], rows[0]["last_offset"]) == (7, 9)


def test_verify_tells_damage_with_file_position_and_reason(cli: CommandLine, tmp_path: Path) -> None:
    data = bytearray(build_message_set(RECORDS))
    data[20] ^= 1
    path = tmp_path / "0.kafka"
    path.write_bytes(data)
    status, rows, err = dump(cli, "--verify", str(path))
    assert (status, [row["problems"] for row in rows]) == (1, [1])
    assert err.startswith(f"minikafka: {path}: 34 bytes from position 0 are damaged: the checksum")
    assert err.count("\n") == 1
