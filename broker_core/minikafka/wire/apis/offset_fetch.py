"""OffsetFetch: the committed offsets of a group.

Version 0 reads from ZooKeeper, later ones from the offsets topic. Version 2: null requests all partitions
with a committed offset, and the response has an error for the group; 3: throttle_time_ms; 5: leader epochs;
7: a consumer may refuse offsets of open transactions; 8: several groups; 9: the member that asks. Versions 4
and 6 have no new fields.
"""

from dataclasses import field
from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since, until

NO_OFFSET = -1
"""``committed_offset`` of a partition without a committed offset."""


@fast_value
class OffsetFetchRequestTopic:
    """The partitions of one topic."""

    name: str
    partition_indexes: tuple[Int32, ...]


@fast_value
class OffsetFetchRequestGroup:
    """The partitions of one group to look up. ``topics`` None: all with a committed offset."""

    group_id: str
    member_id: Annotated[str | None, since(9)] = field(default=None, kw_only=True)
    member_epoch: Annotated[Int32, since(9), "-1: not a member of the newer protocol"] = field(
        default=-1, kw_only=True
    )
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, "null: all"]


@fast_value
class OffsetFetchRequest:
    """The partitions to look up: of one group, or from version 8 on of ``groups``. ``topics`` None: all with
    a committed offset (version 2 and later).
    """

    group_id: Annotated[str, until(7, default="")]
    topics: Annotated[
        tuple[OffsetFetchRequestTopic, ...] | None,
        since(2, until=7, earlier=tuple[OffsetFetchRequestTopic, ...]),
        "null: all",
    ]
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], since(8)] = ()
    require_stable: Annotated[bool, since(7), "wait for open transactions"] = False


@fast_value
class OffsetFetchResponsePartition:
    """The next offset to read; -1 and an empty ``metadata`` if the group has committed none."""

    partition_index: Int32
    committed_offset: Annotated[Int64, "-1: none"]
    committed_leader_epoch: Annotated[Int32, since(5, default=-1), "-1: unknown"]
    metadata: str | None
    error_code: Int16


@fast_value
class OffsetFetchResponseTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


@fast_value
class OffsetFetchResponseGroup:
    """The committed offsets of one group."""

    group_id: str
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: Int16 = 0


@fast_value
class OffsetFetchResponse:
    """The committed offsets: of one group, or from version 8 on of ``groups``. ``error_code`` is that of the
    group; versions without it have it at each partition.
    """

    throttle_time_ms: Annotated[Int32, since(3, default=0)]
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], until(7, default=())]
    error_code: Annotated[Int16, since(2, until=7, default=0), "of the whole group"]
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], since(8)] = ()


OFFSET_FETCH = Api(ApiKey.OFFSET_FETCH, "OffsetFetch", 0, 9, OffsetFetchRequest, OffsetFetchResponse)
