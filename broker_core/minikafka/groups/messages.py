"""The records of ``__consumer_offsets``: Kafka's own keys and values, as messages of ``wire.schema``.

Both begin with the version, an int16; the version of a key is also its kind::

    key 0, 1   (group, topic, partition)   value 0 to 3: an offset that the group has committed
    key 2      (group)                     value 0 to 3: the group's generation, leader and members

A key without a value is a tombstone: the offset or the group was deleted. The topic is compacted, so that the
newest value of each key stays.

``inter.broker.protocol.version`` selects the versions to write, so that every broker of a mixed cluster, or
during an upgrade, can become the coordinator: ``ValueVersions.written_for``. 0.10.1, the default, reads
offset versions 0 and 1 and group versions 0 and 1. Offset version 1 has the time of expiration, which later
versions leave to the coordinator. Group version 3 (2.3) has the instance ids of static members. Before it,
the member id tells: a coordinator gives a static member the id ``INSTANCE-UUID``, and a dynamic one
``CLIENT-UUID``. Source: ``GroupMetadataManager.scala`` of 0.10.1, 2.1 and 3.9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

from minikafka.base.binary import INT16
from minikafka.base.config.types import Release
from minikafka.base.errors import RemoteWireError
from minikafka.base.files import Buffer
from minikafka.base.ids import TopicPartition
from minikafka.base.values import fast_value
from minikafka.wire import schema
from minikafka.wire.fields import Int32, Int64, since
from minikafka.wire.frame_parts import join

T = TypeVar("T")

NEVER_MS = -1
"""``expire_timestamp_ms`` of an offset for which no client requested a retention time."""
UNKNOWN_MS = -1
"""``state_timestamp_ms`` of a version without that field."""
NO_EPOCH = -1

OFFSET_KEY = 1
GROUP_KEY = 2
NEWEST_KEY = 2
NEWEST_VALUE = 3
INSTANCE_IDS_SINCE = 3
"""The first version of a group's value with the instance ids of its members."""

_MEMBER_ID = re.compile(r".+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL)
_UUID_CHARS = 36


@fast_value
class OffsetKey:
    """The key of a committed offset."""

    group: str
    topic: str
    partition: Int32

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the offset."""
        return TopicPartition(self.topic, self.partition)


@fast_value
class GroupMetadataKey:
    """The key of a group's metadata."""

    group: str


@fast_value
class OffsetCommitValue:
    """A committed offset. Times are ms since the epoch."""

    offset: Int64
    leader_epoch: Annotated[Int32, since(3, default=NO_EPOCH)]
    metadata: str
    commit_timestamp_ms: Int64
    expire_timestamp_ms: Annotated[Int64, since(1, until=1, default=NEVER_MS)]


@fast_value
class MemberMetadataValue:
    """One member of a generation. ``subscription`` is its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: Annotated[str | None, since(3)]
    client_id: str
    client_host: str
    rebalance_timeout_ms: Annotated[Int32, since(1, default=-1)]
    session_timeout_ms: Int32
    subscription: bytes
    assignment: bytes


@fast_value
class GroupMetadataValue:
    """One generation of a group; ``protocol`` and ``leader`` are None if it has no members."""

    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    state_timestamp_ms: Annotated[Int64, since(2, default=UNKNOWN_MS)]
    members: tuple[MemberMetadataValue, ...]


@dataclass(frozen=True, slots=True)
class ValueVersions:
    """The versions in which values are written."""

    offset: int = 1
    group: int = 1

    @classmethod
    def written_for(cls, release: Release) -> ValueVersions:
        """Return the versions that brokers of a release can read."""
        if release.numbers >= (2, 1):
            return cls(
                offset=2 if release == Release((2, 1), 0) else 3, group=3 if release.numbers >= (2, 3) else 2
            )
        return cls(offset=1, group=1 if release.numbers >= (0, 10, 1) else 0)


def offset_key(group: str, topic_partition: TopicPartition) -> bytes:
    """Encode the key of a committed offset. Raises LocalWireError for names that are too long."""
    return _encode(OffsetKey, OFFSET_KEY, OffsetKey(group, *topic_partition))


def group_key(group: str) -> bytes:
    """Encode the key of a group."""
    return _encode(GroupMetadataKey, GROUP_KEY, GroupMetadataKey(group))


def offset_bytes(value: OffsetCommitValue, versions: ValueVersions, retention_ms: int) -> bytes:
    """Encode a committed offset.

    Version 1 cannot express that the client requested no retention time. It gets ``retention_ms`` after the
    commit, which ``read_offset`` recognises: a coordinator of 0.10.1 would remove any other offset at once.
    """
    if value.expire_timestamp_ms != NEVER_MS:
        return _encode(OffsetCommitValue, 1, value)
    if versions.offset == 1:
        value = replace(value, expire_timestamp_ms=value.commit_timestamp_ms + retention_ms)
    return _encode(OffsetCommitValue, versions.offset, value)


def group_bytes(value: GroupMetadataValue, versions: ValueVersions) -> bytes:
    """Encode a generation."""
    return _encode(GroupMetadataValue, versions.group, value)


def read_key(data: Buffer) -> OffsetKey | GroupMetadataKey | None:
    """Decode a key; None for kinds that later releases added. Raises RemoteWireError when it is damaged."""
    version, body = _split_version(data)
    if version > NEWEST_KEY:
        return None
    if version == GROUP_KEY:
        return schema.decode(GroupMetadataKey, version, body)
    return schema.decode(OffsetKey, version, body)


def read_offset(data: Buffer, retention_ms: int) -> OffsetCommitValue:
    """Decode a committed offset. Raises RemoteWireError when it is damaged or of an unknown version."""
    value = _decode(OffsetCommitValue, data)
    if value.expire_timestamp_ms == value.commit_timestamp_ms + retention_ms:
        return replace(value, expire_timestamp_ms=NEVER_MS)
    return value


def read_group(data: Buffer) -> GroupMetadataValue:
    """Decode a generation. Raises RemoteWireError when it is damaged or of an unknown version."""
    value = _decode(GroupMetadataValue, data)
    version, _ = _split_version(data)
    if version >= INSTANCE_IDS_SINCE:
        return value
    return replace(value, members=tuple(map(_completed, value.members)))


def _completed(member: MemberMetadataValue) -> MemberMetadataValue:
    """Add to a member of a former version its rebalance time-out (version 0) and its instance id.

    The member remains dynamic if its instance id is its client id too, and must then join again.
    """
    timeout_ms = member.session_timeout_ms if member.rebalance_timeout_ms < 0 else member.rebalance_timeout_ms
    prefix = member.member_id[:-_UUID_CHARS]
    is_static = prefix != f"{member.client_id}-" and _MEMBER_ID.fullmatch(member.member_id) is not None
    return replace(
        member, rebalance_timeout_ms=timeout_ms, group_instance_id=prefix[:-1] if is_static else None
    )


def _encode(message: type[T], version: int, value: T) -> bytes:
    return INT16.pack(version) + join(schema.encode(message, version, value))


def _split_version(data: Buffer) -> tuple[int, memoryview]:
    if len(data) < INT16.size:
        raise RemoteWireError(f"{bytes(data)!r} is too short for a version")
    version: int = INT16.unpack_from(data)[0]
    if version < 0:
        raise RemoteWireError(f"version {version} of a message of __consumer_offsets")
    return version, memoryview(data)[INT16.size :]


def _decode(message: type[T], data: Buffer) -> T:
    version, body = _split_version(data)
    if version > NEWEST_VALUE:
        raise RemoteWireError(f"version {version} of {message.__name__} is newer than {NEWEST_VALUE}")
    return schema.decode(message, version, body)
