"""Keys and values of the offsets topic: those that Kafka 0.10.1 wrote, byte for byte, and other versions."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.config.types import Release
from minikafka.base.errors import LocalWireError, RemoteWireError
from minikafka.base.ids import TopicPartition
from minikafka.groups.messages import (
    NEVER_MS,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadataValue,
    OffsetCommitValue,
    OffsetKey,
    ValueVersions,
    group_bytes,
    group_key,
    offset_bytes,
    offset_key,
    read_group,
    read_key,
    read_offset,
)

RECORDED = Path(__file__).parents[2] / "data" / "consumer-offsets" / "expected.jsonl"
DAY_MS = 24 * 3_600_000
"""The retention of the broker that wrote the recorded offsets."""


def recorded() -> Iterator[tuple[bytes, bytes | None, dict[str, Any]]]:
    """A key and value, and the release's description of them."""
    for line in RECORDED.read_text().splitlines():
        row = json.loads(line)
        value = None if row["value"] is None else base64.b64decode(row["value"])
        yield base64.b64decode(row["key"]), value, row


def as_kafka_prints(key: bytes, value: bytes | None) -> str:
    """Format a record as the formatters of 0.10.1 print it."""
    named = read_key(key)
    if isinstance(named, OffsetKey):
        where = f"[{named.group},{named.topic},{named.partition}]"
        if value is None:
            return f"{where}::NULL\n"
        offset = read_offset(value, retention_ms=0)
        metadata = offset.metadata or "NO_METADATA"
        times = f"CommitTime {offset.commit_timestamp_ms},ExpirationTime {offset.expire_timestamp_ms}"
        return f"{where}::[OffsetMetadata[{offset.offset},{metadata}],{times}]\n"
    assert isinstance(named, GroupMetadataKey)
    if value is None:
        return f"{named.group}::NULL\n"
    group = read_group(value)
    members = ", ".join(
        f"{member.member_id} -> [{member.member_id},{member.client_id},{member.client_host},"
        f"{member.session_timeout_ms}]"
        for member in sorted(group.members, key=lambda member: member.member_id)
    )
    # It prints the type of groups with members only.
    state = f"Some({group.protocol_type}),Stable" if group.members else "None,Empty"
    return f"{named.group}::[{named.group},{state},Map({members})]\n"


def test_records_of_the_release_are_read_as_it_reads_them() -> None:
    for key, value, row in recorded():
        printed = row["offsets_formatter"] or row["group_metadata_formatter"]
        assert as_kafka_prints(key, value) == printed


def test_records_of_the_release_are_encoded_byte_for_byte() -> None:
    for key, value, _ in recorded():
        named = read_key(key)
        if isinstance(named, OffsetKey):
            assert offset_key(named.group, named.topic_partition) == key
            if value is not None:
                assert offset_bytes(read_offset(value, DAY_MS), ValueVersions(), DAY_MS) == value
        else:
            assert isinstance(named, GroupMetadataKey)
            assert group_key(named.group) == key
            if value is not None:
                assert group_bytes(read_group(value), ValueVersions()) == value


PLAIN = OffsetCommitValue(7, 3, "text", 1_000, NEVER_MS)
OWN_TIME = OffsetCommitValue(7, -1, "text", 1_000, 2_500)
MEMBER = MemberMetadataValue("m-1", None, "m", "/127.0.0.1", 60_000, 10_000, b"topics", b"share")
GROUP = GroupMetadataValue("consumer", 4, "range", "m-1", 99, (MEMBER,))


@pytest.mark.parametrize(
    ("release", "offset", "group"),
    [
        ("0.8.2", 1, 0),
        ("0.9.0.1", 1, 0),
        ("0.10.0", 1, 0),
        ("0.10.1", 1, 1),
        ("0.10.1-IV0", 1, 1),
        ("1.0", 1, 1),
        ("2.0-IV1", 1, 1),
        ("2.1-IV0", 2, 2),
        ("2.1-IV1", 3, 2),
        ("2.1", 3, 2),
        ("2.2", 3, 2),
        ("2.3-IV0", 3, 3),
        ("3.9", 3, 3),
    ],
)
def test_values_are_written_as_brokers_of_that_release_read_them(
    release: str, offset: int, group: int
) -> None:
    versions = ValueVersions.written_for(Release.parse(release))
    assert offset_bytes(PLAIN, versions, 500)[:2] == bytes([0, offset])
    assert group_bytes(GROUP, versions)[:2] == bytes([0, group])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_gives_back_what_it_has_room_for(version: int) -> None:
    offset = read_offset(offset_bytes(PLAIN, ValueVersions(offset=version), 500), 500)
    assert offset == OffsetCommitValue(7, 3 if version == 3 else -1, "text", 1_000, NEVER_MS)
    group = read_group(group_bytes(GROUP, ValueVersions(group=version)))
    timeout_ms = 60_000 if version else 10_000
    (member,) = group.members
    assert (group.state_timestamp_ms, member.rebalance_timeout_ms) == (99 if version >= 2 else -1, timeout_ms)
    assert (member.subscription, member.assignment, group.leader) == (b"topics", b"share", "m-1")
    assert member.group_instance_id is None


UUID = "6c1b6d6e-2d2c-4f0e-9d53-0123456789ab"


@pytest.mark.parametrize(
    ("version", "member_id", "client_id", "instance_id"),
    [
        (3, "anything", "c", "stored"),
        (1, f"instance-{UUID}", "c", "instance"),
        (2, f"in\nst-{UUID}-{UUID}", "c", f"in\nst-{UUID}"),
        (1, f"c-{UUID}", "c", None),
        (0, f"-{UUID}", "", None),
        (1, f"-{UUID}", "c", None),
        (1, "m-1", "c", None),
    ],
)
def test_static_members_of_former_versions_are_known_by_their_ids(
    version: int, member_id: str, client_id: str, instance_id: str | None
) -> None:
    member = replace(MEMBER, member_id=member_id, client_id=client_id, group_instance_id="stored")
    stored = group_bytes(replace(GROUP, members=(member,)), ValueVersions(group=version))
    assert read_group(stored).members[0].group_instance_id == instance_id


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_time_that_a_client_asked_for_is_kept_in_every_version(version: int) -> None:
    stored = offset_bytes(OWN_TIME, ValueVersions(offset=version), 500)
    assert stored[:2] == b"\0\1"
    assert read_offset(stored, 500) == OWN_TIME


def test_the_time_of_the_retention_is_none_of_its_own() -> None:
    stored = offset_bytes(PLAIN, ValueVersions(offset=1), 500)
    assert read_offset(stored, 501).expire_timestamp_ms == 1_500
    assert read_offset(stored, 500).expire_timestamp_ms == NEVER_MS


def test_key_version_0_is_an_offset_and_later_kinds_are_unknown() -> None:
    key = offset_key("g", TopicPartition("t", 5))
    assert read_key(b"\0\0" + key[2:]) == read_key(key) == OffsetKey("g", "t", 5)
    assert read_key(b"\0\3" + key[2:]) is None


@pytest.mark.parametrize("damaged", [b"", b"\0", b"\xff\xff\0\1a", b"\0\1\0\5ab", group_key("g") + b"x"])
def test_damaged_keys_are_refused(damaged: bytes) -> None:
    with pytest.raises(RemoteWireError):
        read_key(damaged)


@pytest.mark.parametrize("damaged", [b"", b"\0\4" + b"\0" * 30, b"\0\1\0\0"])
def test_values_that_are_damaged_or_of_an_unknown_version_are_refused(damaged: bytes) -> None:
    for read in (lambda data: read_offset(data, 500), read_group):
        with pytest.raises(RemoteWireError):
            read(damaged)


def test_names_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LocalWireError):
        offset_key("g" * 40_000, TopicPartition("t", 0))
