"""The requests that a follower sends to a leader, and the parsing of their responses."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition, numbers_by_topic
from minikafka.log.log import Log
from minikafka.server.config.replication import ReplicationConfig
from minikafka.wire.apis.fetch import (
    NEW_SESSION_EPOCH,
    NO_SESSION,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    consumer_partition,
    consumer_request,
    fetch_topics,
)
from minikafka.wire.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse, offsets_request

_LAST_EPOCH = 0x7FFFFFFF


class FetchSessionHandler:
    """The fetch session with a leader over one connection: a partition is sent again only when it changes."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = NEW_SESSION_EPOCH
        self._named: dict[TopicPartition, FetchPartition] = {}
        self._anew: set[TopicPartition] = set()

    def follow_anew(self, topic_partition: TopicPartition) -> None:
        """Send a partition in the next request even if nothing changes: its last response may be unused."""
        self._anew.add(topic_partition)

    def request(
        self, replica_id: int, parts: dict[TopicPartition, FetchPartition], config: ReplicationConfig
    ) -> FetchRequest:
        """Return the fetch of exactly these partitions. ``answered`` or ``begin_anew`` must follow."""
        changed, forgotten_keys = parts, []
        if self._epoch != NEW_SESSION_EPOCH:
            named, anew = self._named, self._anew
            changed = {key: part for key, part in parts.items() if key in anew or named.get(key) != part}
            forgotten_keys = [key for key in named if key not in parts]
        self._named = parts
        self._anew.difference_update(parts)
        forgotten = numbers_by_topic(forgotten_keys)
        return FetchRequest(
            replica_id=replica_id,
            max_wait_ms=config.fetch_wait_max_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_response_max_bytes,
            isolation_level=READ_UNCOMMITTED,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=fetch_topics(changed),
            forgotten_topics=tuple(ForgottenTopic(topic, tuple(named)) for topic, named in forgotten.items()),
        )

    def answered(self, response: FetchResponse) -> bool:
        """Return True if the session continues; otherwise the response is unusable and a new one starts."""
        if response.error_code != ErrorCode.NONE:
            self.begin_anew()
            return False
        if response.session_id == NO_SESSION:
            self.begin_anew()  # the leader keeps no session: each request names all partitions
        else:
            self._id = response.session_id
            self._epoch = self._epoch % _LAST_EPOCH + 1
        return True

    def begin_anew(self) -> None:
        """Start a new session with the next request, for example over another connection."""
        self._id, self._epoch, self._named = NO_SESSION, NEW_SESSION_EPOCH, {}


def fetch_parts(
    wanted: Iterable[tuple[TopicPartition, int, Log]], config: ReplicationConfig
) -> dict[TopicPartition, FetchPartition]:
    """Return the fetch positions at the ends of these logs, in order, each with its leader epoch."""
    most = config.fetch_max_bytes
    return {
        name: FetchPartition(name.partition, leader_epoch, log.end_offset, log.start_offset, most)
        for name, leader_epoch, log in wanted
    }


def one_entry(topic_partition: TopicPartition, leader_epoch: int, offset: int) -> FetchRequest:
    """Return a consumer fetch of the entry that holds an offset; it does not change the follower's state."""
    part = consumer_partition(topic_partition.partition, offset, 1, leader_epoch)
    return consumer_request({topic_partition: part}, max_bytes=1)


def entry_in(response: FetchResponse) -> FetchPartitionResponse:
    """Return the partition of the response to ``one_entry``."""
    return response.topics[0].partitions[0]


def offset_at(replica_id: int, topic_partition: TopicPartition, time: int) -> ListOffsetsRequest:
    """Return the request for the leader's log end offset (LATEST) or log start offset (EARLIEST)."""
    return offsets_request({topic_partition: time}, replica_id=replica_id)


def offset_in(response: ListOffsetsResponse) -> int:
    """Return the offset that was requested. Raises BrokerError if the leader returned an error."""
    part = response.topics[0].partitions[0]
    if part.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode.of(part.error_code), "the leader returned no offset")
    return part.offset
