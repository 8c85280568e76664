"""The requests that a follower sends to a leader, and what the answers say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.log.log import Log
from minikafka.server.config.properties import ReplicationConfig
from minikafka.wire.apis.fetch import (
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    NO_SESSION,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from minikafka.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
)

_LAST_EPOCH = 0x7FFFFFFF


class FetchSession:
    """What a leader was told of over one connection: a partition is named again only when that changes."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = NEW_SESSION_EPOCH
        self._named: dict[TopicPartition, FetchPartition] = {}
        self._anew: set[TopicPartition] = set()

    def follow_anew(self, topic_partition: TopicPartition) -> None:
        """What was answered about a partition may not have been taken: name it again, also if nothing
        changes.
        """
        self._anew.add(topic_partition)

    def request(
        self, replica_id: int, parts: dict[TopicPartition, FetchPartition], config: ReplicationConfig
    ) -> FetchRequest:
        """Ask for these, and nothing else. To be followed by ``answered``, or ``begin_anew``."""
        changed, gone = parts, []
        if self._epoch != NEW_SESSION_EPOCH:
            named, anew = self._named, self._anew
            changed = {key: part for key, part in parts.items() if key in anew or named.get(key) != part}
            gone = [key for key in named if key not in parts]
        self._named = parts
        self._anew.difference_update(parts)
        forgotten: dict[str, list[int]] = {}
        for topic, partition in gone:
            forgotten.setdefault(topic, []).append(partition)
        return FetchRequest(
            replica_id=replica_id,
            max_wait_ms=config.fetch_wait_max_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_response_max_bytes,
            isolation_level=READ_UNCOMMITTED,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=_topics(changed),
            forgotten_topics=tuple(ForgottenTopic(topic, tuple(gone)) for topic, gone in forgotten.items()),
        )

    def answered(self, response: FetchResponse) -> bool:
        """Whether the session goes on; else the answer says nothing, and the next request begins another."""
        if response.error_code != ErrorCode.NONE:
            self.begin_anew()
            return False
        if response.session_id == NO_SESSION:
            self.begin_anew()  # declined: each request names all
        else:
            self._id = response.session_id
            self._epoch = self._epoch % _LAST_EPOCH + 1
        return True

    def begin_anew(self) -> None:
        """Over another connection."""
        self._id, self._epoch, self._named = NO_SESSION, NEW_SESSION_EPOCH, {}


def fetch_parts(
    wanted: Iterable[tuple[TopicPartition, int, Log]], config: ReplicationConfig
) -> dict[TopicPartition, FetchPartition]:
    """From the ends of these logs on, in their order; each from the leader of an epoch and no other."""
    most = config.fetch_max_bytes
    return {
        name: FetchPartition(name.partition, leader_epoch, log.end_offset, log.start_offset, most)
        for name, leader_epoch, log in wanted
    }


def one_entry(topic_partition: TopicPartition, leader_epoch: int, offset: int) -> FetchRequest:
    """The entry that holds an offset, as a consumer is given it: the leader counts nobody as having it."""
    part = FetchPartition(topic_partition.partition, leader_epoch, offset, UNKNOWN, 1)
    return FetchRequest(
        replica_id=UNKNOWN,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=READ_UNCOMMITTED,
        session_id=NO_SESSION,
        session_epoch=FINAL_EPOCH,
        topics=(FetchTopic(topic_partition.topic, (part,)),),
        forgotten_topics=(),
    )


def told_entry(response: FetchResponse) -> FetchPartitionResponse:
    """The answer to ``one_entry``."""
    return response.topics[0].partitions[0]


def _topics(parts: Mapping[TopicPartition, FetchPartition]) -> tuple[FetchTopic, ...]:
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, _), part in parts.items():
        topics.setdefault(topic, []).append(part)
    return tuple(FetchTopic(topic, tuple(found)) for topic, found in topics.items())


def epoch_ends(wanted: Iterable[tuple[TopicPartition, int, int]]) -> OffsetForLeaderEpochRequest:
    """Where an epoch, the last number, ends on the leader of another one."""
    topics: dict[str, list[EpochPartition]] = {}
    for (topic, partition), leader_epoch, epoch in wanted:
        topics.setdefault(topic, []).append(EpochPartition(partition, leader_epoch, epoch))
    return OffsetForLeaderEpochRequest(
        tuple(EpochTopic(topic, tuple(parts)) for topic, parts in topics.items())
    )


def offset_at(replica_id: int, topic_partition: TopicPartition, time: int) -> ListOffsetsRequest:
    """The log's end (LATEST) or start (EARLIEST) on its leader."""
    part = ListOffsetsPartition(topic_partition.partition, UNKNOWN, time)
    return ListOffsetsRequest(
        replica_id, READ_UNCOMMITTED, (ListOffsetsTopic(topic_partition.topic, (part,)),)
    )


def told_offset(response: ListOffsetsResponse) -> int:
    """The one offset that was asked for. Raises BrokerError where the leader does not give it."""
    part = response.topics[0].partitions[0]
    if part.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode.of(part.error_code), "the leader does not tell its offsets")
    return part.offset
