"""Conversion between the controller's decisions and its requests.

LeaderAndIsr has version 5 and UpdateMetadata version 7, with topic ids. Where topics have none, as brokers
before 2.8 may be in the cluster, LeaderAndIsr has version 0; UpdateMetadata has version 3, with names of
listeners, and beside 0.10.1 brokers version 2, which knows an endpoint by its security protocol alone.
StopReplica always has the version that 0.10.1 reads. The broker epoch is always -1, unknown: a broker that
returns has another session, and the requests for the former one are dropped (``controller_channel``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition, check_topic_name, rows_by_topic
from minikafka.partition.replica import LeaderAndIsr
from minikafka.wire.apis.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    LiveLeader,
)
from minikafka.wire.apis.stop_replica import StopReplicaPartition, StopReplicaRequest
from minikafka.wire.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from minikafka.wire.fields import ZERO_UUID

_log = logging.getLogger(__name__)

LEADER_AND_ISR_VERSION = 5
LEADER_AND_ISR_VERSION_WITHOUT_IDS = 0
STOP_REPLICA_VERSION = 0
UPDATE_METADATA_VERSION = 7
UPDATE_METADATA_VERSION_WITHOUT_IDS = 3
UPDATE_METADATA_VERSION_IN_0_10_1 = 2
_LISTENER_NAMES_SINCE = 3
_BY_TOPIC_SINCE = 5
_LEADER_AND_ISR_BY_TOPIC_SINCE = 2
_RESPONSE_BY_TOPIC_ID_SINCE = 5
_PROTOCOLS = frozenset(SecurityProtocol)


@dataclass(frozen=True, slots=True)
class ParsedLeaderAndIsr:
    """The content of a LeaderAndIsr request."""

    leaderships: Mapping[TopicPartition, LeaderAndIsr]
    leaders: Mapping[int, BrokerAddress]
    """The leaders' addresses."""
    topic_ids: Mapping[str, bytes]
    """The ids of the topics that have one."""
    invalid: Mapping[TopicPartition, ErrorCode]
    """The ``invalid_partitions``, which are not in ``leaderships``."""


def leader_and_isr(
    controller_id: int,
    controller_epoch: int,
    leaderships: Mapping[TopicPartition, LeaderAndIsr],
    brokers: Mapping[int, BrokerAddress],
    topic_ids: Mapping[str, bytes],
    version: int = LEADER_AND_ISR_VERSION,
) -> LeaderAndIsrRequest:
    """Return the request with the state of these partitions and the addresses of their leaders.

    ``brokers``: the addresses on the controller's inter-broker listener.
    """
    leaders = sorted({leadership.leader for leadership in leaderships.values()} & brokers.keys())
    rows = [(key, LeaderAndIsrPartition(*_fields(key, found))) for key, found in leaderships.items()]
    by_topic = version >= _LEADER_AND_ISR_BY_TOPIC_SINCE
    return LeaderAndIsrRequest(
        controller_id,
        controller_epoch,
        () if by_topic else tuple(row for _, row in rows),
        tuple(LiveLeader(leader, brokers[leader].host, brokers[leader].port) for leader in leaders),
        topics=tuple(
            LeaderAndIsrTopicState(topic, tuple(parts), topic_id=topic_ids.get(topic, ZERO_UUID))
            for topic, parts in (rows_by_topic(rows) if by_topic else {}).items()
        ),
    )


def parse_leader_and_isr(request: LeaderAndIsrRequest) -> ParsedLeaderAndIsr:
    """Return the content of the request, without ``invalid_partitions``."""
    leaders = {
        broker.broker_id: BrokerAddress(broker.broker_id, broker.host, broker.port)
        for broker in request.live_leaders
    }
    partitions, topic_ids = _partitions_of(request)
    wrong = invalid_partitions(partitions)
    return ParsedLeaderAndIsr(_leaderships(partitions, wrong), leaders, topic_ids, wrong)


def leader_and_isr_response(
    codes: Mapping[TopicPartition, ErrorCode], topic_ids: Mapping[str, bytes], version: int
) -> LeaderAndIsrResponse:
    """Return the response with the results for partitions. ``topic_ids``: those in the request."""
    rows = [(key, LeaderAndIsrPartitionError(*key, code)) for key, code in codes.items()]
    if version < _RESPONSE_BY_TOPIC_ID_SINCE:
        return LeaderAndIsrResponse(ErrorCode.NONE, tuple(row for _, row in rows))
    topics = tuple(
        LeaderAndIsrTopicError(topic_ids.get(topic, ZERO_UUID), tuple(parts))
        for topic, parts in rows_by_topic(rows).items()
    )
    return LeaderAndIsrResponse(ErrorCode.NONE, (), topics)


def parse_leader_and_isr_response(
    response: LeaderAndIsrResponse, topic_ids: Mapping[str, bytes]
) -> dict[TopicPartition, ErrorCode]:
    """Return the results for partitions. ``topic_ids``: those in the request; other ids are left out."""
    names = {topic_id: topic for topic, topic_id in topic_ids.items()}
    rows = [((row.topic, row.index), row.error_code) for row in response.partitions]
    rows += [
        ((names[topic.topic_id], row.index), row.error_code)
        for topic in response.topics
        if topic.topic_id in names
        for row in topic.partitions
    ]
    return {TopicPartition(*key): ErrorCode.of(code) for key, code in rows}


def stop_replica(
    controller_id: int, controller_epoch: int, partitions: Iterable[TopicPartition], *, delete: bool
) -> StopReplicaRequest:
    """Return the request to stop these replicas and, with ``delete``, to delete them."""
    named = tuple(StopReplicaPartition(*partition) for partition in partitions)
    return StopReplicaRequest(controller_id, controller_epoch, delete, named)


def update_metadata(
    controller_id: int,
    controller_epoch: int,
    brokers: Mapping[int, LiveBroker],
    leaderships: Mapping[TopicPartition, LeaderAndIsr],
    topic_ids: Mapping[str, bytes],
    version: int = UPDATE_METADATA_VERSION,
) -> UpdateMetadataRequest:
    """Return the request that updates a broker's metadata cache, with all endpoints that ``version`` has."""
    named, by_topic = version >= _LISTENER_NAMES_SINCE, version >= _BY_TOPIC_SINCE
    rows = [(key, UpdateMetadataPartition(*_fields(key, found))) for key, found in leaderships.items()]
    topics = rows_by_topic(rows) if by_topic else {}
    return UpdateMetadataRequest(
        controller_id,
        controller_epoch,
        () if by_topic else tuple(row for _, row in rows),
        topics=tuple(
            UpdateMetadataTopicState(topic, tuple(parts), topic_id=topic_ids.get(topic, ZERO_UUID))
            for topic, parts in topics.items()
        ),
        live_brokers=tuple(
            UpdateMetadataBroker(
                broker.broker_id,
                endpoints=tuple(
                    UpdateMetadataEndpoint(at.port, at.host, at.listener if named else "", at.protocol)
                    for at in broker.endpoints
                    if named or at.is_named_by_protocol
                ),
                rack=broker.rack,
            )
            for broker in brokers.values()
        ),
    )


def parse_update_metadata(
    request: UpdateMetadataRequest,
) -> tuple[dict[int, LiveBroker], dict[TopicPartition, LeaderAndIsr], dict[str, bytes]]:
    """Return the brokers and the partitions of the request, and the ids of the topics that have one.

    Endpoints with an unknown security protocol and ``invalid_partitions`` are left out.
    """
    brokers = {}
    for broker in request.live_brokers:
        known = LiveBroker(broker.broker_id, tuple(_endpoints(broker)), broker.rack)
        if broker.port >= 0:  # version 0
            known = LiveBroker.plaintext(broker.broker_id, broker.host, broker.port)
        brokers[broker.broker_id] = known
    partitions, topic_ids = _partitions_of(request)
    return brokers, _leaderships(partitions, invalid_partitions(partitions)), topic_ids


def _partitions_of(
    request: LeaderAndIsrRequest | UpdateMetadataRequest,
) -> tuple[list[LeaderAndIsrPartition | UpdateMetadataPartition], dict[str, bytes]]:
    """Return the partitions of all versions with their topics' names, and the ids of the topics with one."""
    partitions: list[LeaderAndIsrPartition | UpdateMetadataPartition] = list(request.partitions)
    for topic in request.topics:
        partitions += (replace(row, topic=topic.topic) for row in topic.partitions)
    topic_ids = {topic.topic: topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID}
    return partitions, topic_ids


def _endpoints(broker: UpdateMetadataBroker) -> Iterator[BrokerEndpoint]:
    for endpoint in broker.endpoints:
        if endpoint.security_protocol in _PROTOCOLS:
            protocol = SecurityProtocol(endpoint.security_protocol)
            yield BrokerEndpoint(endpoint.listener or protocol.name, protocol, endpoint.host, endpoint.port)


def _fields(
    name: TopicPartition, found: LeaderAndIsr
) -> tuple[str, int, int, int, int, tuple[int, ...], int, tuple[int, ...]]:
    """Return the fields of a partition that both requests have, in their order."""
    return (
        name.topic,
        name.partition,
        found.controller_epoch,
        found.leader,
        found.leader_epoch,
        found.isr,
        found.version,
        found.replicas,
    )


def invalid_partitions(
    partitions: Iterable[LeaderAndIsrPartition | UpdateMetadataPartition | StopReplicaPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return the partitions that are not valid, with the error code for the response. Each is logged.

    INVALID_TOPIC for an illegal name or a negative number, since both become part of a path. INVALID_REQUEST
    for a broker that appears twice among the replicas: one copy must not count as two.
    """
    codes = {}
    legal: str | None = None
    for partition in partitions:
        code, problem = ErrorCode.NONE, ""
        try:
            if partition.topic != legal:
                check_topic_name(partition.topic)
                legal = partition.topic
        except BrokerError as error:
            code, problem = error.code, error.detail
        if partition.index < 0:
            code, problem = ErrorCode.INVALID_TOPIC, "the partition number is negative"
        elif not code and _has_twice(partition):
            code, problem = ErrorCode.INVALID_REQUEST, "a broker appears twice in replicas or ISR"
        if code:
            codes[TopicPartition(partition.topic, partition.index)] = code
            _log.warning(
                "rejected a controller's request for partition %d of topic %r: %s",
                partition.index,
                partition.topic,
                problem,
            )
    return codes


def _has_twice(partition: LeaderAndIsrPartition | UpdateMetadataPartition | StopReplicaPartition) -> bool:
    """Return True if a broker appears twice in the replicas or in the ISR."""
    if isinstance(partition, StopReplicaPartition):
        return False
    return any(len(set(broker_ids)) < len(broker_ids) for broker_ids in (partition.replicas, partition.isr))


def _leaderships(
    partitions: Iterable[LeaderAndIsrPartition | UpdateMetadataPartition],
    left_out: Mapping[TopicPartition, ErrorCode],
) -> dict[TopicPartition, LeaderAndIsr]:
    """Return the state of each partition that is not in ``left_out``."""
    return {
        TopicPartition(partition.topic, partition.index): LeaderAndIsr(
            partition.leader_id,
            partition.leader_epoch,
            partition.isr,
            partition.replicas,
            partition.controller_epoch,
            partition.zk_version,
        )
        for partition in partitions
        if TopicPartition(partition.topic, partition.index) not in left_out
    }
